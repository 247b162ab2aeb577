#pragma once

#include "core/record/spin_lock.h"
#include "core/record/trace_file.h"
#include "core/record/trace_format.h"

#include <cstdint>
#include <string_view>

namespace cachealloc {

/// Numbers by name, each as last set.
///
/// Invariant: a record below Section::used has its name and keeps it. Thread-safe; O(records).
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
    SpinLock lock_{};
};

} // namespace cachealloc
