// Device memory that the pools cache is free as far as the program knows: whoever is told by the
// driver that there is none gets the pools' free memory back first.
#pragma once

#include "core/device_pool.h"
#include "shim/cuda_types.h"

namespace cachealloc::shim {

struct ContextPool;
struct Process;

// Whether a pool has found no memory, on the device or within what the process may hold.
inline bool is_short(const PoolResult& result) {
    return result.status == PoolStatus::out_of_memory || result.status == PoolStatus::over_limit;
}

// False where the user wants to be told of that at once.
bool may_make_room(const Process& process);

// Ends a request that the pool answered with over_limit: said, recorded, and the native error.
CUresult refuse(Process& process, ContextPool& context, std::uint64_t bytes);

// Gives the driver back what the pools of the current device hold and no one uses, waiting for
// freed blocks whose work is not done as cudaFree would have. `except`: a pool that has done so
// already. Returns whether anything was given back. Not beside an open capture.
bool make_room(const ContextPool* except);

// Runs `call`; where it finds no memory, makes room and runs it once more.
template <class Call>
CUresult with_room(Call call) {
    const CUresult result = call();
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !make_room(nullptr)) return result;
    return call();
}

} // namespace cachealloc::shim
