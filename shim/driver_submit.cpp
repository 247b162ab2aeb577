// Stream memory operations. They pass natively while another thread waits in cudaFree, so work that
// a free comes after may depend on one that comes later; and what they write no barrier of ours
// holds up. Programs that use them get only finished blocks.
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/submit.h"

namespace cachealloc::shim {

namespace {

// Never waits: the operation may be what the device is waiting for.
void no_barriers_from_now_on(Entry entry, CUstream stream) {
    Process* const state = process();
    if (state == nullptr) return;
    state->contexts.enter_finished_everywhere(false);
    before_submit({entry, has_per_thread_api(entry), stream, nullptr});
}

} // namespace

#define MEMORY_OPERATION(name, params, args)                                                       \
    CUresult hook_##name params {                                                                  \
        no_barriers_from_now_on(Entry::name, stream);                                              \
        return real.name args;                                                                     \
    }
#define WRITE_VALUE(name, type)                                                                    \
    MEMORY_OPERATION(name, (CUstream stream, CUdeviceptr address, type value, unsigned int flags), \
                     (stream, address, value, flags))
#define BATCH(name)                                                                                \
    MEMORY_OPERATION(name,                                                                         \
                     (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* operations,   \
                      unsigned int flags),                                                         \
                     (stream, count, operations, flags))

WRITE_VALUE(cuStreamWriteValue32, std::uint32_t)
WRITE_VALUE(cuStreamWriteValue32_ptsz, std::uint32_t)
WRITE_VALUE(cuStreamWriteValue32_v2, std::uint32_t)
WRITE_VALUE(cuStreamWriteValue32_v2_ptsz, std::uint32_t)
WRITE_VALUE(cuStreamWriteValue64, std::uint64_t)
WRITE_VALUE(cuStreamWriteValue64_ptsz, std::uint64_t)
WRITE_VALUE(cuStreamWriteValue64_v2, std::uint64_t)
WRITE_VALUE(cuStreamWriteValue64_v2_ptsz, std::uint64_t)
BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_ptsz)
BATCH(cuStreamBatchMemOp_v2)
BATCH(cuStreamBatchMemOp_v2_ptsz)

#undef BATCH
#undef WRITE_VALUE
#undef MEMORY_OPERATION

} // namespace cachealloc::shim
