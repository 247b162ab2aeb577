#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace simcuda {

namespace {

constexpr std::size_t kAddresses = std::size_t{256} << 30;

void* at_address(std::uintptr_t p) {
    return reinterpret_cast<void*>(p);
}

} // namespace

void* map_pages(std::size_t bytes, bool accessible) {
    void* p = mmap(nullptr, bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

void unmap_pages(void* p, std::size_t bytes) {
    munmap(p, bytes);
}

int memory_file(std::size_t bytes) {
    const int file = memfd_create("simcuda", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
        close(file);
        return -1;
    }
    return file;
}

void* map_file(void* where, std::size_t bytes, int file, std::size_t offset, bool accessible) {
    void* p = mmap(where, bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE,
                   MAP_SHARED | MAP_NORESERVE | (where == nullptr ? 0 : MAP_FIXED), file,
                   static_cast<off_t>(offset));
    return p == MAP_FAILED ? nullptr : p;
}

void reserve_again(void* p, std::size_t bytes) {
    mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void set_accessible(void* p, std::size_t bytes, bool accessible) {
    mprotect(p, bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
}

bool carve(std::map<std::uintptr_t, std::size_t>& holes, std::uintptr_t base, std::size_t bytes) {
    auto it = holes.upper_bound(base);
    if (it == holes.begin()) {
        return false;
    }
    --it;
    const std::uintptr_t begin = it->first;
    const std::uintptr_t end = begin + it->second;
    if (base + bytes > end) {
        return false;
    }
    holes.erase(it);
    if (begin < base) {
        holes[begin] = base - begin;
    }
    if (base + bytes < end) {
        holes[base + bytes] = end - (base + bytes);
    }
    return true;
}

void fill_hole(std::map<std::uintptr_t, std::size_t>& holes, std::uintptr_t base,
               std::size_t bytes) {
    auto it = holes.emplace(base, bytes).first;
    const auto next = std::next(it);
    if (next != holes.end() && it->first + it->second == next->first) {
        it->second += next->second;
        holes.erase(next);
    }
    if (it != holes.begin()) {
        const auto before = std::prev(it);
        if (before->first + before->second == it->first) {
            before->second += it->second;
            holes.erase(it);
        }
    }
}

bool DeviceMemory::take(std::size_t bytes) {
    if (bytes > limit_ || used_ > limit_ - bytes) {
        return false;
    }
    used_ += bytes;
    return true;
}

std::uintptr_t DeviceMemory::allocate(std::size_t bytes) {
    if (bytes == 0 || bytes > limit_) {
        return 0;
    }
    if (begin_ == 0) {
        // A shared file and not anonymous memory, so that other processes can map it.
        void* p = map_pages(kAddresses + kGranule, false);
        file_ = memory_file(kAddresses);
        if (p == nullptr || file_ < 0) {
            return 0;
        }
        begin_ = round_up(reinterpret_cast<std::uintptr_t>(p), kGranule);
        if (map_file(at_address(begin_), kAddresses, file_, 0, false) == nullptr) {
            begin_ = 0;
            return 0;
        }
        end_ = begin_ + kAddresses;
        free_[begin_] = kAddresses;
    }
    return bytes < kGranule ? allocate_small(round_up(bytes, kAlignment))
                            : allocate_granules(round_up(bytes, kGranule));
}

void DeviceMemory::release(std::uintptr_t base, std::size_t bytes) {
    if (bytes < kGranule) {
        release_small(base, round_up(bytes, kAlignment));
    } else {
        release_granules(base, round_up(bytes, kGranule));
    }
}

std::uintptr_t DeviceMemory::allocate_granules(std::size_t bytes) {
    if (!take(bytes)) {
        return 0;
    }
    std::uintptr_t base = 0;
    auto& last = last_[bytes];
    while (base == 0 && !last.empty()) {
        if (carve(free_, last.back(), bytes)) {
            base = last.back();
        }
        last.pop_back();
    }
    for (auto it = free_.begin(); base == 0 && it != free_.end(); ++it) {
        if (it->second >= bytes) {
            base = it->first;
            carve(free_, base, bytes);
            break;
        }
    }
    if (base == 0 || mprotect(at_address(base), bytes, PROT_READ | PROT_WRITE) != 0) {
        give(bytes);
        return 0;
    }
    return base;
}

void DeviceMemory::release_granules(std::uintptr_t base, std::size_t bytes) {
    madvise(at_address(base), bytes, MADV_REMOVE); // while still writable: it punches a hole
    mprotect(at_address(base), bytes, PROT_NONE);
    fill_hole(free_, base, bytes);
    auto& last = last_[bytes];
    last.push_back(base);
    if (last.size() > 64) {
        last.erase(last.begin());
    }
    give(bytes);
}

std::uintptr_t DeviceMemory::allocate_small(std::size_t bytes) {
    std::uintptr_t base = 0;
    auto& last = last_[bytes];
    while (base == 0 && !last.empty()) {
        auto chunk = chunks_.upper_bound(last.back());
        if (chunk != chunks_.begin() && carve(std::prev(chunk)->second.free, last.back(), bytes)) {
            base = last.back();
            ++std::prev(chunk)->second.live;
        }
        last.pop_back();
    }
    for (auto& [at, chunk] : chunks_) {
        if (base != 0) {
            break;
        }
        for (const auto& [hole, size] : chunk.free) {
            if (size >= bytes) {
                base = hole;
                carve(chunk.free, base, bytes);
                ++chunk.live;
                break;
            }
        }
    }
    if (base == 0) {
        base = allocate_granules(kGranule);
        if (base == 0) {
            return 0;
        }
        Chunk chunk;
        chunk.live = 1;
        if (bytes < kGranule) {
            chunk.free[base + bytes] = kGranule - bytes;
        }
        chunks_.emplace(base, std::move(chunk));
    }
    // New memory holds whatever was there: programs that lean on zeros should fail here too.
    std::memset(at_address(base), 0xCD, bytes);
    return base;
}

void DeviceMemory::release_small(std::uintptr_t base, std::size_t bytes) {
    const auto it = std::prev(chunks_.upper_bound(base));
    fill_hole(it->second.free, base, bytes);
    last_[bytes].push_back(base);
    if (--it->second.live == 0) {
        const std::uintptr_t chunk = it->first;
        chunks_.erase(it);
        release_granules(chunk, kGranule);
    }
}

std::shared_ptr<Allocation> AddressMap::add(Allocation a) {
    a.buffer_id = ++next_id_;
    auto p = std::make_shared<Allocation>(std::move(a));
    by_base_[p->base] = p;
    return p;
}

std::shared_ptr<Allocation> AddressMap::find(std::uintptr_t p) const {
    auto it = by_base_.upper_bound(p);
    if (it == by_base_.begin()) {
        return nullptr;
    }
    --it;
    return p < it->second->end() ? it->second : nullptr;
}

std::shared_ptr<Allocation> AddressMap::at(std::uintptr_t p) const {
    const auto it = by_base_.find(p);
    return it == by_base_.end() ? nullptr : it->second;
}

bool AddressMap::covers(std::uintptr_t p, std::size_t bytes) const {
    auto a = find(p);
    if (a == nullptr || p + bytes < p) {
        return false;
    }
    while (a->end() < p + bytes) {
        const auto next = at(a->end());
        if (a->kind != Memory::mapped || next == nullptr || next->kind != Memory::mapped) {
            return false;
        }
        a = next;
    }
    return true;
}

} // namespace simcuda
