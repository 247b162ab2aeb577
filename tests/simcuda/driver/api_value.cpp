// Stream write-values, wait-values and batches of them. They pass while a cuMemFree of the context
// waits, as measured for cuStreamWriteValue32.
#include <cstring>

#include "copy.h"

using namespace simcuda;

namespace {

template <class T>
T load(std::uintptr_t p) {
    return *reinterpret_cast<const volatile T*>(p);
}

template <class T>
bool holds(std::uintptr_t p, T value, unsigned flags) {
    const T now = load<T>(p);
    switch (flags & 3U) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return static_cast<std::make_signed_t<T>>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & value) != 0;
    default:
        return static_cast<T>(~(now | value)) != 0;
    }
}

template <class T>
CUresult check(std::uintptr_t p) {
    bool pageable = false;
    SIM_TRY(check_side(p, sizeof(T), Side::device, &pageable));
    return p % sizeof(T) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <class T>
CUresult write_on(const StreamPtr& s, CUdeviceptr p, T value) {
    SIM_TRY(check<T>(p));
    Work work;
    work.label = "cuStreamWriteValue";
    work.passes_free = true;
    work.publishes = p;
    work.effect = [p, value] { *reinterpret_cast<volatile T*>(p) = value; };
    return submit(s, std::move(work));
}

template <class T>
CUresult wait_on(const StreamPtr& s, CUdeviceptr p, T value, unsigned flags) {
    SIM_TRY(check<T>(p));
    Work work;
    work.label = "cuStreamWaitValue";
    work.passes_free = true;
    work.awaits = p;
    work.gate = [p, value, flags] { return holds<T>(p, value, flags); };
    return submit(s, std::move(work));
}

template <class T>
CUresult write_value(bool pt, CUstream stream, CUdeviceptr p, T value) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    return write_on<T>(s, p, value);
}
template <class T>
CUresult wait_value(bool pt, CUstream stream, CUdeviceptr p, T value, unsigned flags) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    return wait_on<T>(s, p, value, flags);
}

CUresult batch(bool pt, CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    if (ops == nullptr && count > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; ++i) {
        const CUstreamBatchMemOpParams& op = ops[i];
        switch (op.operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            SIM_TRY(write_on<cuuint32_t>(s, op.writeValue.address, op.writeValue.value));
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            SIM_TRY(write_on<cuuint64_t>(s, op.writeValue.address, op.writeValue.value64));
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            SIM_TRY(wait_on<cuuint32_t>(s, op.waitValue.address, op.waitValue.value,
                                        op.waitValue.flags));
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            SIM_TRY(wait_on<cuuint64_t>(s, op.waitValue.address, op.waitValue.value64,
                                        op.waitValue.flags));
            break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

} // namespace

#define SIM_VALUES(bits)                                                                           \
    SIM_TWINS(cuStreamWriteValue##bits, cuStreamWriteValue##bits##_ptsz,                           \
              write_value<cuuint##bits##_t>,                                                       \
              (CUstream s, CUdeviceptr p, cuuint##bits##_t v, unsigned int), s, p, v)              \
    SIM_TWINS(cuStreamWriteValue##bits##_v2, cuStreamWriteValue##bits##_v2_ptsz,                   \
              write_value<cuuint##bits##_t>,                                                       \
              (CUstream s, CUdeviceptr p, cuuint##bits##_t v, unsigned int), s, p, v)              \
    SIM_TWINS(cuStreamWaitValue##bits, cuStreamWaitValue##bits##_ptsz,                             \
              wait_value<cuuint##bits##_t>,                                                        \
              (CUstream s, CUdeviceptr p, cuuint##bits##_t v, unsigned int f), s, p, v, f)         \
    SIM_TWINS(cuStreamWaitValue##bits##_v2, cuStreamWaitValue##bits##_v2_ptsz,                     \
              wait_value<cuuint##bits##_t>,                                                        \
              (CUstream s, CUdeviceptr p, cuuint##bits##_t v, unsigned int f), s, p, v, f)
SIM_VALUES(32)
SIM_VALUES(64)
SIM_TWINS(cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz, batch,
          (CUstream s, unsigned int n, CUstreamBatchMemOpParams* ops, unsigned int), s, n, ops)
SIM_TWINS(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz, batch,
          (CUstream s, unsigned int n, CUstreamBatchMemOpParams* ops, unsigned int), s, n, ops)
