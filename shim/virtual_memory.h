// Which physical memory the program has made, and where it is mapped.
//
// Invariant: physical memory lives as long as its handle is held or it is mapped anywhere, as in
// the driver: programs release the handle at once and unmap later, or the other way round. A handle
// that was not made here (imported, multicast) is nobody's memory.
//
// Thread-safe; calls nobody.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace cachealloc::shim {

class VirtualMemory {
  public:
    // A handle was made, or one more reference to it taken.
    void created(std::uint64_t handle);
    void retained(std::uint64_t handle);
    // A reference is given back. True if the memory ends with it.
    bool released(std::uint64_t handle);

    void mapped(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle);
    // The mappings in this range end, and with them the physical memory in `handles`. restore()
    // undoes it.
    struct Mapping {
        std::uint64_t address;
        std::uint64_t bytes;
        std::uint64_t handle;
    };
    struct Ended {
        std::vector<Mapping> mappings;
        std::vector<std::uint64_t> handles;
    };
    Ended unmapped(std::uint64_t address, std::uint64_t bytes);
    void restore(const Ended& ended);

  private:
    struct Physical {
        std::uint32_t references;
        std::uint32_t mappings;
    };

    void map_locked(const Mapping& mapping);

    std::mutex mutex_;
    std::map<std::uint64_t, Physical> physical_; // by handle
    std::map<std::uint64_t, Mapping> mappings_;  // by address
};

} // namespace cachealloc::shim
