// Addresses and physical memory of the simulated devices, and the map of everything that a CUDA
// call may be given a pointer into.
//
// Invariant: the allocations of the map are disjoint; a device's `used` is the 2 MiB granules that
// its live allocations touch. Device pointers are real host addresses, so that host twins of
// kernels may dereference them.
//
// Not thread-safe: the world's lock is held around every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace simcuda {

struct Context;
struct Pool;

constexpr std::size_t kGranule = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 512;

constexpr std::size_t round_up(std::size_t n, std::size_t to) {
    return (n + to - 1) / to * to;
}

// The memory of one device: a range of addresses and a budget of physical bytes.
class DeviceMemory {
  public:
    explicit DeviceMemory(std::size_t limit) : limit_(limit) {}
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    // Start of `bytes` bytes, or 0 when physical memory or addresses run out. Requests below 2 MiB
    // share granules; larger ones begin on a granule. A size freed before gets its last address
    // back while that is free.
    std::uintptr_t allocate(std::size_t bytes);
    void release(std::uintptr_t base, std::size_t bytes);

    // Physical memory without addresses, for mapping by the program.
    bool take(std::size_t bytes);
    void give(std::size_t bytes) { used_ -= bytes; }

    std::size_t limit() const { return limit_; }
    std::size_t used() const { return used_; }
    void set_limit(std::size_t limit) { limit_ = limit; }
    // The file behind the addresses, and where in it `p` is: what another process maps.
    int file() const { return file_; }
    std::uintptr_t begin() const { return begin_; }
    bool contains(std::uintptr_t p) const { return p >= begin_ && p < end_; }

  private:
    struct Chunk {
        std::map<std::uintptr_t, std::size_t> free; // holes by address
        std::size_t live = 0;
    };

    std::uintptr_t allocate_granules(std::size_t bytes);
    void release_granules(std::uintptr_t base, std::size_t bytes);
    std::uintptr_t allocate_small(std::size_t bytes);
    void release_small(std::uintptr_t base, std::size_t bytes);

    std::size_t limit_ = 0;
    std::size_t used_ = 0;
    int file_ = -1;
    std::uintptr_t begin_ = 0;
    std::uintptr_t end_ = 0;
    std::map<std::uintptr_t, std::size_t> free_;              // unused addresses
    std::map<std::size_t, std::vector<std::uintptr_t>> last_; // freed addresses by size
    std::map<std::uintptr_t, Chunk> chunks_;                  // shared granules
};

// Takes [base, base + bytes) out of a map of holes; false if it is not wholly inside one.
bool carve(std::map<std::uintptr_t, std::size_t>& holes, std::uintptr_t base, std::size_t bytes);
// Puts it back and merges neighbours.
void fill_hole(std::map<std::uintptr_t, std::size_t>& holes, std::uintptr_t base,
               std::size_t bytes);

enum class Memory { device, pool, managed, pinned, registered, mapped, imported };

struct Allocation {
    std::uintptr_t base = 0;
    std::size_t size = 0;
    Memory kind = Memory::device;
    int device = 0;
    std::shared_ptr<Context> ctx;
    std::uint64_t buffer_id = 0;
    unsigned flags = 0;
    std::shared_ptr<Pool> pool;
    bool freeing = false;        // given to a stream-ordered free that has not run yet
    bool accessible = true;      // mapped memory is not before cuMemSetAccess
    std::uint64_t physical = 0;  // for mapped memory: serial of the physical memory
    std::uintptr_t identity = 0; // and where its bytes lie in the oracle's eyes, however mapped
    std::set<int> reached_from;  // and the devices that may touch it
    bool rdma = false;           // and whether network cards may be given it

    bool on_host() const { return kind == Memory::pinned || kind == Memory::registered; }
    std::uintptr_t end() const { return base + size; }
};

class AddressMap {
  public:
    std::shared_ptr<Allocation> add(Allocation a);
    void remove(std::uintptr_t base) { by_base_.erase(base); }
    // The allocation that `p` lies in, or null.
    std::shared_ptr<Allocation> find(std::uintptr_t p) const;
    // The allocation that begins at `p`, or null.
    std::shared_ptr<Allocation> at(std::uintptr_t p) const;
    // Whether all bytes belong to one allocation, or to mapped ones without a gap.
    bool covers(std::uintptr_t p, std::size_t bytes) const;
    const std::map<std::uintptr_t, std::shared_ptr<Allocation>>& all() const { return by_base_; }

  private:
    std::map<std::uintptr_t, std::shared_ptr<Allocation>> by_base_;
    std::uint64_t next_id_ = 0;
};

// Anonymous memory from the system; null when there is none.
void* map_pages(std::size_t bytes, bool accessible);
// A sparse memory file, -1 when there is none.
int memory_file(std::size_t bytes);
// Maps part of one, at `where` (replacing what is there) unless that is null.
void* map_file(void* where, std::size_t bytes, int file, std::size_t offset, bool accessible);
// Turns pages into plain reserved addresses again.
void reserve_again(void* p, std::size_t bytes);
void set_accessible(void* p, std::size_t bytes, bool accessible);
void unmap_pages(void* p, std::size_t bytes);

} // namespace simcuda
