// Export of memory to other processes.
#include "shim/driver.h"
#include "shim/log.h"
#include "shim/pooled.h"

namespace cachealloc::shim {

// A handle names a whole driver allocation, and its importer gets that allocation's base. So only a
// block that begins its segment can be exported: any other would be imported at the wrong address,
// silently. An importer's writes follow no order of ours: every pool steps down to `finished`.
CUresult hook_cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
    Process* const state = process();
    if (state != nullptr) state->calls.ipc_exports.fetch_add(1, std::memory_order_relaxed);
    const Owned owned = state == nullptr ? Owned{} : owner_of(*state, pointer);
    if (owned.live != nullptr && owned.live->asynchronous.load(std::memory_order_relaxed)) {
        return real.cuIpcGetMemHandle(handle, kNowhere); // natively refused as well
    }
    if (state != nullptr) {
        state->contexts.enter_finished_everywhere(true);
        state->contexts.serve_from_segments_everywhere(); // it will export more
    }
    if (owned.segment == nullptr) return real.cuIpcGetMemHandle(handle, pointer);
    if (owned.live == nullptr) return real.cuIpcGetMemHandle(handle, kNowhere);
    if (is_growable(*state, pointer, 1)) {
        log_once("ipc-mapped", LogLevel::error,
                 "cudaIpcGetMemHandle refused: memory of expandable segments cannot be exported "
                 "(what is allocated from now on can); run this program with "
                 "CACHEALLOC_CONF=expandable_segments:False");
        return bad_pointer();
    }
    if (owned.live->address != owned.segment->base) {
        log_once(
            "ipc-interior", LogLevel::error,
            "cudaIpcGetMemHandle refused: the allocation shares its segment with others and "
            "does not begin it, so that importers would map the wrong memory; run this program "
            "with CACHEALLOC_CONF=pool:False");
        return bad_pointer();
    }
    owned.segment->exported = true;
    return real.cuIpcGetMemHandle(handle, pointer);
}

} // namespace cachealloc::shim
