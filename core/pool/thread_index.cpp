#include "core/pool/thread_index.h"

#include <array>
#include <atomic>
#include <bit>

namespace cachealloc {

namespace {

/// One bit per index, set = taken. Index 0 is kSharedThread and always taken.
std::array<std::atomic<std::uint64_t>, kThreads / 64> g_taken{};
std::atomic<std::uint32_t> g_limit{1};

/// Gives the index back at the thread's end. Later uses in other thread-local destructors share
/// kSharedThread.
struct Release {
    std::uint32_t index = kSharedThread;
    Release() = default;
    Release(const Release&) = delete;
    Release& operator=(const Release&) = delete;
    ~Release() {
        detail::t_thread_index_plus_one = kSharedThread + 1;
        if (index != kSharedThread) {
            g_taken[index / 64].fetch_and(~(std::uint64_t{1} << (index % 64)),
                                          std::memory_order_release);
        }
    }
};

std::uint32_t take_free_index() {
    for (std::uint32_t word = 0; word < g_taken.size(); ++word) {
        std::uint64_t taken = g_taken[word].load(std::memory_order_relaxed);
        for (;;) {
            const std::uint64_t blocked = taken | (word == 0 ? 1U : 0U);
            if (~blocked == 0) break;
            const auto bit = static_cast<std::uint32_t>(std::countr_one(blocked));
            if (g_taken[word].compare_exchange_weak(taken, taken | std::uint64_t{1} << bit,
                                                    std::memory_order_acquire)) {
                return word * 64 + bit;
            }
        }
    }
    return kSharedThread;
}

} // namespace

namespace detail {

thread_local std::uint32_t t_thread_index_plus_one = 0;

std::uint32_t assign_thread_index() {
    static thread_local Release release;
    release.index = take_free_index();
    t_thread_index_plus_one = release.index + 1;
    std::uint32_t limit = g_limit.load(std::memory_order_relaxed);
    while (limit <= release.index &&
           !g_limit.compare_exchange_weak(limit, release.index + 1, std::memory_order_release)) {
    }
    return release.index;
}

} // namespace detail

std::uint32_t thread_index_limit() {
    return g_limit.load(std::memory_order_acquire);
}

} // namespace cachealloc
