#include "shim/cuda_order.h"

#include "shim/driver.h"
#include "shim/process.h"
#include "shim/relaxed_capture.h"
#include "shim/submit.h"

#include <sched.h>

namespace cachealloc::shim {

OrderResult translate(CUresult result) {
    switch (result) {
    case CUDA_SUCCESS:
        return {};
    case CUDA_ERROR_NOT_READY:
        return {OrderStatus::pending, 0};
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_NOT_PERMITTED: // inside a host callback
    case CUDA_ERROR_NOT_SUPPORTED:
        return {OrderStatus::failed, static_cast<int>(result)};
    default:
        break;
    }
    if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
        result <= CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        return {OrderStatus::refused, static_cast<int>(result)};
    }
    return {OrderStatus::lost, static_cast<int>(result)}; // faults are sticky
}

// Made ahead, or at first use: the whole ring of 1,024 would cost 0.5 ms at start.
CUresult CudaOrder::event(std::uint32_t index, CUevent& made) {
    std::atomic<CUevent>& slot = events_[index];
    made = slot.load(std::memory_order_acquire);
    if (made != nullptr) return CUDA_SUCCESS;
    const CurrentContext scope(owner_.handle);
    const CUresult result = real.cuEventCreate(&made, kEventDisableTiming);
    if (result != CUDA_SUCCESS) return result;
    CUevent none = nullptr;
    if (slot.compare_exchange_strong(none, made, std::memory_order_acq_rel)) return CUDA_SUCCESS;
    real.cuEventDestroy_v2(made);
    made = none;
    return CUDA_SUCCESS;
}

void CudaOrder::make_events_ahead() {
    const OrderLevel level = owner_.pool.fences().level();
    if (level == OrderLevel::ordered || level == OrderLevel::wait) return; // it has no fences
    const GatePass pass(process_.gate);
    if (!pass.inside()) return;
    const CurrentContext scope(owner_.handle);
    const Stamp now = owner_.pool.fences().stamp();
    for (Stamp number = now + 1; number <= now + kAhead; ++number) {
        CUevent made = nullptr;
        if (event(Fences::event_of(number), made) != CUDA_SUCCESS) return;
    }
}

CUdevice CudaOrder::device() const {
    return owner_.device;
}

bool CudaOrder::works() {
    if (!real.cuCtxRecordEvent || !real.cuCtxWaitEvent) return false;
    const OrderResult result = record(0);
    return result.status != OrderStatus::failed;
}

OrderResult CudaOrder::record(std::uint32_t index) {
    const GatePass pass(process_.gate);
    if (!pass.inside() && rule_on(Rule::capture_aside)) return {OrderStatus::refused, 0};
    CUevent handle = nullptr;
    const CUresult made = event(index, handle);
    return translate(made == CUDA_SUCCESS ? real.cuCtxRecordEvent(owner_.handle, handle) : made);
}

OrderResult CudaOrder::query(std::uint32_t index) {
    CUevent handle = nullptr;
    const CUresult made = event(index, handle);
    if (made != CUDA_SUCCESS) return translate(made);
    {
        const GatePass pass(process_.gate);
        if (pass.inside()) return translate(real.cuEventQuery(handle));
    }
    const RelaxedCapture relaxed;
    return translate(real.cuEventQuery(handle));
}

OrderResult CudaOrder::wait_on_device(std::uint32_t index) {
    const GatePass pass(process_.gate);
    if (!pass.inside() && rule_on(Rule::capture_aside)) return {OrderStatus::refused, 0};
    CUevent handle = nullptr;
    const CUresult made = event(index, handle);
    return translate(made == CUDA_SUCCESS ? real.cuCtxWaitEvent(owner_.handle, handle) : made);
}

namespace {

CUstream stream_of(StreamHandle handle) {
    return reinterpret_cast<CUstream>(handle);
}

// The stream was valid just before. Should it not go together with our event all the same, that is
// no fault of the context, and there are other ways.
OrderResult translate_on_stream(CUresult result) {
    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT) {
        return {OrderStatus::refused, static_cast<int>(result)};
    }
    return translate(result);
}

} // namespace

OrderResult CudaOrder::record_on(StreamHandle stream, std::uint32_t index) {
    const GatePass pass(process_.gate);
    if (!pass.inside() && rule_on(Rule::capture_aside)) return {OrderStatus::refused, 0};
    CUevent handle = nullptr;
    if (event(index, handle) != CUDA_SUCCESS) return {OrderStatus::refused, 0};
    return translate_on_stream(real.cuEventRecord(handle, stream_of(stream)));
}

OrderResult CudaOrder::wait_on_stream(StreamHandle stream, std::uint32_t index) {
    const GatePass pass(process_.gate);
    if (!pass.inside() && rule_on(Rule::capture_aside)) return {OrderStatus::refused, 0};
    CUevent handle = nullptr;
    if (event(index, handle) != CUDA_SUCCESS) return {OrderStatus::refused, 0};
    return translate_on_stream(real.cuStreamWaitEvent(stream_of(stream), handle, 0));
}

// Without events the whole wait is inside the gate: a capture that begins meanwhile waits for it,
// as it natively waits for another thread's cuMemFree (measured on an H200).
OrderResult CudaOrder::synchronize() {
    const GatePass pass(process_.gate);
    if (!pass.inside()) return {OrderStatus::refused, 0};
    const CurrentContext scope(owner_.handle);
    return translate(real.cuCtxSynchronize());
}

CUevent CudaOrder::record_once() {
    const GatePass pass(process_.gate);
    if (!pass.inside()) return nullptr;
    const CurrentContext scope(owner_.handle);
    CUevent made = nullptr;
    if (real.cuEventCreate(&made, kEventDisableTiming) != CUDA_SUCCESS) return nullptr;
    if (real.cuCtxRecordEvent(owner_.handle, made) == CUDA_SUCCESS) return made;
    real.cuEventDestroy_v2(made);
    return nullptr;
}

bool CudaOrder::covers(CUstream stream) {
    CUcontext context = nullptr;
    if (real.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS || context == owner_.handle)
        return true;
    const std::lock_guard lock(bridge_mutex_);
    if (bridge_ == nullptr) {
        const CurrentContext scope(owner_.handle);
        if (real.cuStreamCreate(&bridge_, kStreamNonBlocking) != CUDA_SUCCESS) return false;
    }
    const CurrentContext scope(context);
    CUevent done = nullptr;
    if (real.cuEventCreate(&done, kEventDisableTiming) != CUDA_SUCCESS) return false;
    const bool joined = real.cuEventRecord(done, stream) == CUDA_SUCCESS &&
                        real.cuStreamWaitEvent(bridge_, done, 0) == CUDA_SUCCESS;
    real.cuEventDestroy_v2(done); // the driver keeps it for as long as it is needed
    return joined;
}

void CudaOrder::pause() {
    sched_yield();
}

bool CudaOrder::several_streams() const {
    return process_.stream_use.several([] { watch_submits(kWatchUse); });
}

} // namespace cachealloc::shim
