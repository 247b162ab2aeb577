// The small sections: threads, devices, statistics, settings.
#pragma once

#include "tools/trace/trace_file.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cachealloc::tools {

struct Thread {
    std::uint32_t number = 0;
    std::uint32_t os_id = 0;
    std::uint64_t start = 0; ///< ticks
    std::uint64_t end = 0;   ///< ticks; 0: it ran, or ended with the process
    std::string name;
};

class Threads {
  public:
    explicit Threads(const TraceFile& file);
    /// By their numbers.
    [[nodiscard]] const std::vector<Thread>& all() const { return threads_; }
    /// The thread with that number, or null. O(log threads).
    [[nodiscard]] const Thread* find(std::uint32_t number) const;

  private:
    std::vector<Thread> threads_;
};

struct Device {
    std::uint32_t ordinal = 0;
    std::string name;
    std::uint64_t total = 0; ///< bytes; 0: not known
    std::uint64_t live = 0;  ///< this and what follows: as DeviceCounters, never negative
    std::uint64_t live_peak = 0;
    std::uint64_t live_pooled = 0;
    std::uint64_t reserved = 0;
    std::uint64_t reserved_peak = 0;
    std::uint64_t host = 0;
    std::uint64_t host_peak = 0;
    std::uint64_t live_peak_time = 0;
    std::uint64_t reserved_peak_time = 0;
};

class Devices {
  public:
    explicit Devices(const TraceFile& file);
    /// Those that were used or named, by ordinal.
    [[nodiscard]] const std::vector<Device>& all() const { return devices_; }
    /// The device, or null.
    [[nodiscard]] const Device* find(std::uint32_t ordinal) const;

  private:
    std::vector<Device> devices_;
};

class Statistics {
  public:
    explicit Statistics(const TraceFile& file);
    [[nodiscard]] const std::map<std::string, std::uint64_t, std::less<>>& all() const {
        return values_;
    }
    [[nodiscard]] bool has(std::string_view name) const { return values_.contains(name); }
    /// 0 for what is not there.
    [[nodiscard]] std::uint64_t operator[](std::string_view name) const;

  private:
    std::map<std::string, std::uint64_t, std::less<>> values_;
};

class Settings {
  public:
    explicit Settings(const TraceFile& file);
    /// In the order in which they were set; a name that came twice has its last value.
    [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& all() const {
        return values_;
    }
    /// Empty for what is not there.
    [[nodiscard]] std::string_view operator[](std::string_view name) const;

  private:
    std::vector<std::pair<std::string, std::string>> values_;
};

/// `text` as far as it is fit to be printed in a line: control characters become '?', so that no
/// file plays tricks with a terminal.
[[nodiscard]] std::string printable(std::string_view text);

} // namespace cachealloc::tools
