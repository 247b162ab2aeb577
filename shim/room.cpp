#include "shim/room.h"

#include "shim/driver.h"
#include "shim/process.h"

#include <vector>

namespace cachealloc::shim {

bool make_room(const ContextPool* except) {
    Process* const state = process();
    CUdevice device = 0;
    if (state == nullptr || !state->options.pool || state->capturing() ||
        real.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return false;
    }
    std::vector<ContextPool*> pools;
    state->contexts.for_each([&](ContextPool& context) {
        if (context.device == device && &context != except) pools.push_back(&context);
    });
    bool released = false;
    for (ContextPool* const context : pools)
        released |= context->pool.release_all() != 0;
    return released;
}

} // namespace cachealloc::shim
