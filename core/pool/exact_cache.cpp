#include "core/pool/exact_cache.h"

#include "core/pool/host_pages.h"

#include <new>

namespace cachealloc {

ExactCache::~ExactCache() {
    for (std::atomic<ThreadCache*>& slot : caches_) {
        ThreadCache* const cache = slot.load(std::memory_order_relaxed);
        if (cache != &shared_cache_) unmap_host_pages(cache, sizeof(ThreadCache));
    }
}

template <class Visit>
void ExactCache::visit(Visit visit) const {
    if (ThreadCache* const cache = caches_[kSharedThread].load(std::memory_order_acquire))
        visit(*cache); // others without a cache of their own use it too
    const std::uint32_t limit = thread_index_limit();
    for (std::uint32_t i = 1; i < limit; ++i) {
        ThreadCache* const cache = caches_[i].load(std::memory_order_acquire);
        if (cache != nullptr && cache != &shared_cache_) visit(*cache);
    }
}

/// Only the thread that holds `index` comes here for it, except for kSharedThread, whose cache
/// exists already.
ThreadCache& ExactCache::make(std::uint32_t index) {
    ThreadCache* cache = &shared_cache_;
    if (index != kSharedThread) {
        if (void* const memory = map_host_pages(sizeof(ThreadCache))) {
            cache = new (memory) ThreadCache();
            threads_.fetch_add(1, std::memory_order_relaxed);
        }
    }
    if (cache == &shared_cache_) caches_[kSharedThread].store(cache, std::memory_order_release);
    // Headroom was given in the belief that fewer threads take from it.
    visit([](ThreadCache& other) { other.surplus.store(-1, std::memory_order_relaxed); });
    caches_[index].store(cache, std::memory_order_release);
    return *cache;
}

bool ExactCache::within_budget(const Block* block) const {
    return stacked_bytes_.load(std::memory_order_relaxed) + block->size <= budget_;
}

void ExactCache::push(Block* block) {
    stacked_bytes_.fetch_add(block->size, std::memory_order_relaxed);
    std::atomic<std::uint64_t>& head = heads_[block->bin];
    std::uint64_t seen = head.load(std::memory_order_relaxed);
    std::uint64_t wanted = 0;
    do {
        block->stack_link.store(static_cast<std::uint32_t>(seen), std::memory_order_relaxed);
        wanted = ((seen >> 32) + 1) << 32 | block->index;
    } while (!head.compare_exchange_weak(seen, wanted, std::memory_order_release,
                                         std::memory_order_relaxed));
}

Block* ExactCache::pop(std::uint32_t bin) {
    std::atomic<std::uint64_t>& head = heads_[bin];
    std::uint64_t seen = head.load(std::memory_order_acquire);
    for (;;) {
        const auto index = static_cast<std::uint32_t>(seen);
        if (index == 0) return nullptr;
        Block* const block = arena_.at(index);
        const std::uint64_t wanted =
            ((seen >> 32) + 1) << 32 | block->stack_link.load(std::memory_order_relaxed);
        if (head.compare_exchange_weak(seen, wanted, std::memory_order_acquire,
                                       std::memory_order_acquire)) {
            stacked_bytes_.fetch_sub(block->size, std::memory_order_relaxed);
            return block;
        }
    }
}

/// The stack, then the slots of other threads: memory idle there would otherwise make us grow.
Block* ExactCache::take_shared(std::uint32_t bin, ThreadCache& mine) {
    Block* block = pop(bin);
    const std::uint32_t limit = thread_index_limit();
    for (std::uint32_t i = 0; block == nullptr && i < limit; ++i) {
        ThreadCache* const cache = caches_[i].load(std::memory_order_acquire);
        if (cache == nullptr || cache->slots[bin].load(std::memory_order_relaxed) == nullptr) {
            continue;
        }
        block = cache->slots[bin].exchange(nullptr, std::memory_order_acquire);
    }
    if (block != nullptr) mine.add(BinIndex::size_class(bin), Counter::shared_hits, 1);
    return block;
}

std::array<Counters, kSizeClasses> ExactCache::totals() const {
    std::array<Counters, kSizeClasses> sums{};
    visit([&sums](const ThreadCache& cache) {
        for (const SizeClass which : {kSmallClass, kLargeClass}) {
            for (std::size_t i = 0; i < sums[which].size(); ++i)
                sums[which][i] += cache.get(which, static_cast<Counter>(i));
        }
    });
    return sums;
}

std::uint64_t ExactCache::total(Counter counter) const {
    std::uint64_t sum = 0;
    visit([&sum, counter](const ThreadCache& cache) {
        sum += cache.get(kSmallClass, counter) + cache.get(kLargeClass, counter);
    });
    return sum;
}

} // namespace cachealloc
