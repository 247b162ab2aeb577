// How much of a device's memory the whole process holds: contexts and libraries included, which the
// CUDA driver does not tell, but the management library (NVML) does.
#pragma once

#include <cstdint>
#include <span>

namespace cachealloc::shim {

class ProcessMemory {
  public:
    // As NVML lays them out.
    struct Entry {
        unsigned int pid;
        unsigned long long bytes; // all ones: not known
        unsigned int gpu_instance;
        unsigned int compute_instance;
    };
    using Device = void*;

    // Opens the library, once, before locks of the process are held: its constructors run. Without
    // it nothing is known.
    void open();

    // The device at `bus_id`; null if there is none or no library. Thread-safe once opened.
    [[nodiscard]] Device device(const char* bus_id) const;

    // Bytes of the device that the process holds, 0 if not known. About a millisecond.
    // Thread-safe once opened.
    [[nodiscard]] std::uint64_t bytes(Device device) const;

    // What a list of the processes on a device says of process `pid`; 0 if nothing. A container may
    // number its processes in its own way: the only one on the device is taken to be this one.
    [[nodiscard]] static std::uint64_t bytes_of(std::span<const Entry> entries, unsigned int pid);

  private:
    int (*find_)(const char*, Device*) = nullptr;
    int (*list_)(Device, unsigned int*, Entry*) = nullptr;
};

} // namespace cachealloc::shim
