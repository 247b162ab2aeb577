// Memory that is mapped into reserved addresses piece by piece: the growable half of MemorySource,
// over cuMemAddressReserve, cuMemCreate, cuMemMap and cuMemSetAccess.
//
// Invariant: one handle per piece, held as long as the piece is mapped in its range and released
// exactly once; a second mapping (alias) holds no handle of its own. What the driver refuses to
// take back is kept and offered again at the next call, so that nothing leaks by one refusal.
//
// Mappings and handles belong to the process, not to a context: they outlive the context, and
// context_ended() gives them back.
//
// Thread-safe: one lock, held across driver calls of which none waits for the device (measured on
// an H200).
#pragma once

#include "core/pool/memory_source.h"
#include "shim/cuda_types.h"
#include "shim/peer_access.h"

#include <atomic>
#include <cstdint>
#include <mutex>

namespace cachealloc::shim {

// How often memory was mapped (pieces, or a second time) and unmapped, and the time in the driver.
struct MappingCalls {
    std::atomic<std::uint64_t> map;
    std::atomic<std::uint64_t> unmap;
    std::atomic<std::uint64_t> map_ns;
    std::atomic<std::uint64_t> unmap_ns;
};

class VmmSource {
  public:
    // Memory of `device` for the pool of `context`; peers and calls outlive the source.
    VmmSource(CUcontext context, CUdevice device, PeerAccess& peers, MappingCalls& calls)
        : context_(context), device_(device), peers_(peers), calls_(calls) {}

    // As in MemorySource.
    SourceResult reserve(std::uint64_t bytes);
    void unreserve(DeviceAddress address, std::uint64_t bytes);
    SourceResult map(DeviceAddress address, std::uint64_t bytes, std::uint64_t piece);
    SourceResult unmap(DeviceAddress address, std::uint64_t bytes);
    SourceResult alias(const PieceRun* runs, std::uint32_t count);
    SourceResult drop_alias(DeviceAddress address, std::uint64_t bytes);

    // Says once on standard error why memory could not be mapped, if that was so, and not for want
    // of memory: for a pool that goes on without.
    void explain() const;

    // Offers the driver once more what it has refused to take back. True if it took all of that.
    bool give_back_leftovers();

    // Whether any of these addresses is reserved here, mapped or not.
    bool reserves(DeviceAddress address, std::uint64_t bytes);

    // Calls visit(address, bytes) for the pieces in [address, address + bytes) of a range, in
    // order. Not beside map() and unmap() of the same addresses.
    template <class Visit>
    void for_each_piece(DeviceAddress address, std::uint64_t bytes, Visit visit) {
        const Range* const range = range_of(address, bytes);
        if (range == nullptr) return;
        for (DeviceAddress at = address; at < address + bytes;) {
            const Piece& piece = range->piece_at(at);
            if (piece.bytes == 0) return;
            visit(at, piece.bytes);
            at += piece.bytes;
        }
    }

    // Lets `device` reach all that is mapped, second mappings included, or no longer. What is
    // mapped later is reachable from the devices that PeerAccess names. On an error everything is
    // as before.
    CUresult set_access(CUdevice device, bool allowed);

    // The context is gone and with it all work: gives everything back. The pool must be
    // buried.
    void context_ended();

  private:
    struct Piece { // where it begins; no bytes elsewhere
        CUmemGenericAllocationHandle handle;
        std::uint64_t bytes;
    };
    struct Range { // reserved by reserve()
        DeviceAddress base;
        std::uint64_t bytes;
        Piece* pieces; // one place for each kGranule
        Range* next;

        Piece& piece_at(DeviceAddress address) const { return pieces[(address - base) / kGranule]; }
        std::uint64_t table_bytes() const { return bytes / kGranule * sizeof(Piece); }
        bool contains(DeviceAddress address, std::uint64_t size) const {
            return address >= base && address - base <= bytes && size <= bytes - (address - base);
        }
    };
    struct Alias { // a second mapping, with addresses of its own
        DeviceAddress base;
        std::uint64_t bytes;
        Alias* next;
    };
    // What is to be given back, in this order; parts that are done are 0.
    struct Leftover {
        DeviceAddress mapped;
        std::uint64_t mapped_bytes;
        CUmemGenericAllocationHandle handle;
        bool has_handle;
        DeviceAddress reserved;
        std::uint64_t reserved_bytes;
        Leftover* next;
    };

    bool usable();
    bool still_mapped(DeviceAddress address, std::uint64_t bytes) const;
    const Range* range_of(DeviceAddress address, std::uint64_t bytes) const;
    bool whole(const Range& range, DeviceAddress address, std::uint64_t bytes) const;
    CUresult create(std::uint64_t bytes, CUmemGenericAllocationHandle& handle);
    CUresult allow(DeviceAddress address, std::uint64_t bytes);
    CUresult map_second(DeviceAddress at, const Range& range, const PieceRun& run,
                        std::uint64_t& done);
    void forget_pieces(const Range& range, DeviceAddress address, std::uint64_t bytes);
    template <class Apply>
    CUresult for_each_mapping(Apply apply);
    bool finish(Leftover& leftover);
    void give_back(Leftover leftover);
    void tidy();
    SourceResult refused(const char* what, CUresult result);

    enum class Support : unsigned char { unknown, none, present };

    const CUcontext context_;
    const CUdevice device_;
    PeerAccess& peers_;
    MappingCalls& calls_;
    std::mutex mutex_;
    Support support_ = Support::unknown;
    bool rdma_ = false; // network cards may be given the memory
    Range* ranges_ = nullptr;
    Alias* aliases_ = nullptr;
    Leftover* leftovers_ = nullptr;
    std::atomic<const char*> trouble_{nullptr}; // what failed last
    CUresult trouble_error_ = CUDA_SUCCESS;
};

} // namespace cachealloc::shim
