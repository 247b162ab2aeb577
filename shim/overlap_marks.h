// Up to which change of the pool (an allocation, a free) each stream has been put in order by a
// launch that does not overlap its predecessor.
//
// Invariant: what is forgotten or unknown counts as "changes since", which costs an overlap and
// nothing else. A stream's mark is set after its launch went to the driver, so a launch of another
// thread on the same stream that comes before it finds no mark yet.
#pragma once

#include "shim/cuda_types.h"

#include <array>
#include <cstdint>
#include <mutex>

namespace cachealloc::shim {

class OverlapMarks {
  public:
    // A stream as launches name it; per-thread default streams share a handle, so the thread
    // (any address that is its own) counts too.
    struct Key {
        CUstream stream = nullptr;
        const void* thread = nullptr;
        friend bool operator==(const Key&, const Key&) = default;
    };

    // Whether nothing changed since the stream's mark, `now` being the count of changes.
    bool in_order(const Key& key, std::uint64_t now) {
        const std::lock_guard lock(mutex_);
        const Mark& mark = mark_of(key);
        return mark.known && mark.key == key && mark.changes == now;
    }

    void launched(const Key& key, std::uint64_t changes) {
        const std::lock_guard lock(mutex_);
        mark_of(key) = {key, changes, true};
    }

  private:
    struct Mark {
        Key key{};
        std::uint64_t changes = 0;
        bool known = false;
    };
    Mark& mark_of(const Key& key) {
        const auto bits = reinterpret_cast<std::uintptr_t>(key.stream) ^
                          reinterpret_cast<std::uintptr_t>(key.thread);
        return marks_[(bits * 0x9E3779B97F4A7C15u) >> 58];
    }

    std::mutex mutex_;
    std::array<Mark, 64> marks_{};
};

} // namespace cachealloc::shim
