// What several hooks ask about an address: is it the pool's, and what does the driver say of an
// address that is nobody's?
#pragma once

#include "shim/cuda_types.h"
#include "shim/process.h"

namespace cachealloc::shim {

// The live block around `pointer` (its requested bytes, not what the rounding added), and whether
// the pool owns the address at all.
struct Owned {
    Segment* segment = nullptr; // null: not the pool's
    Block* live = nullptr;      // null: freed, or beyond what was asked for
};
Owned owner_of(const Process& process, CUdeviceptr pointer);

// Finds the block that starts at `pointer`; `ours` says whether the pool owns the address at all. A
// context that is just ending hides its addresses and may show them again; an address of such a one
// must not reach the driver meanwhile.
Block* find_block(Process& state, CUdeviceptr pointer, bool& ours);

// Whether any of these addresses is reserved for growable memory of a pool. Takes locks where
// there is such memory.
bool is_growable(Process& process, CUdeviceptr address, std::uint64_t bytes);

// The driver's code for what a free came to.
CUresult code_of(const PoolResult& result);

// What a free gives natively for an address that is not (or no longer) an allocation's: the
// context's own trouble if it has any (a fault, a callback), else INVALID_VALUE, with and without a
// current context (measured on an H200).
CUresult bad_pointer();

// An address that no allocation can have, to ask the driver about in place of a freed one.
inline constexpr CUdeviceptr kNowhere = 0x100;

} // namespace cachealloc::shim
