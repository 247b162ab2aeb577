#pragma once

#include "core/pool/gauge.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cachealloc {

/// What torch.cuda.memory_stats() tells of an allocator, under the same names and with the same
/// meaning: "segment" and "inactive_split" are of classic segments only, "reserved_bytes" of all
/// memory, "active" of what is allocated or freed but not fit for reuse yet, as is
/// "requested_bytes".
struct MemoryStats {
    GaugeSet allocation;
    GaugeSet allocated_bytes;
    GaugeSet requested_bytes;
    GaugeSet active;
    GaugeSet active_bytes;
    GaugeSet segment;
    GaugeSet reserved_bytes;
    GaugeSet inactive_split;
    GaugeSet inactive_split_bytes;
    Gauge oversize_allocations;
    Gauge oversize_segments;
    std::int64_t num_alloc_retries = 0;    ///< everything cached was given back to serve one
    std::int64_t num_ooms = 0;             ///< could not be served even so
    std::int64_t num_sync_all_streams = 0; ///< waits for everything that was freed
    std::int64_t num_device_alloc = 0;     ///< segments and mappings obtained from the driver
    std::int64_t num_device_free = 0;
    std::int64_t num_oom_rejections = 0; ///< refused without asking the driver
    std::int64_t max_split_size = -1;    ///< bytes; -1: unlimited
};

/// The names, and what they stand for: for_each_memory_stat() joins them.
namespace memory_stat_names {

template <class Of, class Value>
struct Row {
    const char* name;
    Value Of::*member;
};
inline constexpr Row<MemoryStats, GaugeSet> kSets[] = {
    {"allocation", &MemoryStats::allocation},
    {"allocated_bytes", &MemoryStats::allocated_bytes},
    {"requested_bytes", &MemoryStats::requested_bytes},
    {"active", &MemoryStats::active},
    {"active_bytes", &MemoryStats::active_bytes},
    {"segment", &MemoryStats::segment},
    {"reserved_bytes", &MemoryStats::reserved_bytes},
    {"inactive_split", &MemoryStats::inactive_split},
    {"inactive_split_bytes", &MemoryStats::inactive_split_bytes},
};
inline constexpr Row<MemoryStats, Gauge> kGauges[] = {
    {"oversize_allocations", &MemoryStats::oversize_allocations},
    {"oversize_segments", &MemoryStats::oversize_segments},
};
inline constexpr Row<MemoryStats, std::int64_t> kNumbers[] = {
    {"num_alloc_retries", &MemoryStats::num_alloc_retries},
    {"num_ooms", &MemoryStats::num_ooms},
    {"num_sync_all_streams", &MemoryStats::num_sync_all_streams},
    {"num_device_alloc", &MemoryStats::num_device_alloc},
    {"num_device_free", &MemoryStats::num_device_free},
    {"num_oom_rejections", &MemoryStats::num_oom_rejections},
    {"max_split_size", &MemoryStats::max_split_size},
};
struct ClassRow {
    const char* name;
    SizeClass which;
};
inline constexpr ClassRow kClasses[] = {
    {"all", kBothClasses}, {"large_pool", kLargeClass}, {"small_pool", kSmallClass}};
inline constexpr Row<Gauge, std::int64_t> kQuantities[] = {{"current", &Gauge::current},
                                                           {"peak", &Gauge::peak},
                                                           {"allocated", &Gauge::allocated},
                                                           {"freed", &Gauge::freed}};

/// Text of at most 47 bytes, joined by dots.
class Name {
  public:
    Name(const char* head) { append(head); }
    Name operator+(const char* tail) const {
        Name longer(*this);
        longer.append(".");
        longer.append(tail);
        return longer;
    }
    const char* text() const { return text_.data(); }

  private:
    void append(const char* more) {
        const std::size_t room = text_.size() - 1 - length_;
        const std::size_t bytes = std::strlen(more) < room ? std::strlen(more) : room;
        std::memcpy(text_.data() + length_, more, bytes);
        length_ += bytes;
    }
    std::array<char, 48> text_{};
    std::size_t length_ = 0;
};

} // namespace memory_stat_names

/// How many figures there are.
inline constexpr std::size_t kMemoryStats = 123;

/// Calls visit(name, value) for every figure: "active_bytes.large_pool.peak" .. `stats` may be
/// const or not, and so is `value`, a std::int64_t. Allocates nothing. `prefix`, if not null, comes
/// before each name, with a dot.
template <class Stats, class Visit>
void for_each_memory_stat(Stats& stats, Visit visit, const char* prefix = nullptr) {
    using namespace memory_stat_names;
    const auto begin = [prefix](const char* name) {
        return prefix != nullptr ? Name(prefix) + name : Name(name);
    };
    const auto gauge = [&visit](const Name& name, auto& values) {
        for (const auto& quantity : kQuantities)
            visit((name + quantity.name).text(), values.*quantity.member);
    };
    for (const auto& set : kSets) {
        for (const ClassRow& row : kClasses)
            gauge(begin(set.name) + row.name, (stats.*set.member)[row.which]);
    }
    for (const auto& one : kGauges)
        gauge(begin(one.name), stats.*one.member);
    for (const auto& number : kNumbers)
        visit(begin(number.name).text(), stats.*number.member);
}

/// Adds what another pool of the device has. Peaks are then at most too high.
inline void add(MemoryStats& sum, const MemoryStats& one) {
    using namespace memory_stat_names;
    for (const auto& set : kSets) {
        for (const ClassRow& row : kClasses)
            (sum.*set.member)[row.which] += (one.*set.member)[row.which];
    }
    for (const auto& gauge : kGauges)
        sum.*gauge.member += one.*gauge.member;
    for (const auto& number : kNumbers)
        sum.*number.member += one.*number.member;
    sum.max_split_size = one.max_split_size;
}

} // namespace cachealloc
