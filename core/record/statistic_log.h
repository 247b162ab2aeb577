#pragma once

#include "core/record/spin_lock.h"
#include "core/record/trace_file.h"
#include "core/record/trace_format.h"

#include <atomic>
#include <cstdint>
#include <string_view>

namespace cachealloc {

/// Numbers by name, each as last set.
///
/// Invariant: a record below Section::used has its name and keeps it. Thread-safe; O(records), but
/// O(1) for the one behind the last that was set: all are set in the same order again and again.
class StatisticLog {
  public:
    /// `space` is wholly allocated and outlives the log.
    explicit StatisticLog(SectionSpace& space) : space_(space) {}

    /// False where there is no room for a new name. Names are cut at 47 bytes.
    bool set(std::string_view name, std::uint64_t value, std::uint64_t now);

  private:
    trace::StatisticRecord* find(std::string_view name) const;
    trace::StatisticRecord* enter(std::string_view name);

    SectionSpace& space_;
    mutable std::atomic<std::uint64_t> next_{0}; ///< where the next one is probably
    SpinLock lock_{};
};

} // namespace cachealloc
