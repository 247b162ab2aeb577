#include "shim/cuda_order.h"

#include "shim/driver.h"
#include "shim/process.h"

#include <sched.h>

namespace cachealloc::shim {

namespace {

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

} // namespace

// Made at first use: a ring of 1,024 would cost 0.5 ms at start.
CUevent CudaOrder::event(std::uint32_t index) {
    std::atomic<CUevent>& slot = events_[index];
    CUevent made = slot.load(std::memory_order_acquire);
    if (made != nullptr) return made;
    const CurrentContext scope(owner_.handle);
    if (real.cuEventCreate(&made, kEventDisableTiming) != CUDA_SUCCESS) return nullptr;
    CUevent none = nullptr;
    if (slot.compare_exchange_strong(none, made, std::memory_order_acq_rel)) return made;
    real.cuEventDestroy_v2(made);
    return none;
}

bool CudaOrder::works() {
    if (!real.cuCtxRecordEvent || !real.cuCtxWaitEvent) return false;
    const OrderResult result = record(0);
    return result.status != OrderStatus::failed;
}

OrderResult CudaOrder::record(std::uint32_t index) {
    const GatePass pass(process_.gate);
    if (!pass.inside() && rule_on(Rule::capture_aside)) return {OrderStatus::refused, 0};
    const CUevent handle = event(index);
    if (handle == nullptr) return {OrderStatus::failed, CUDA_ERROR_OUT_OF_MEMORY};
    return translate(real.cuCtxRecordEvent(owner_.handle, handle));
}

OrderResult CudaOrder::query(std::uint32_t index) {
    const CUevent handle = event(index);
    if (handle == nullptr) return {OrderStatus::pending, 0};
    {
        const GatePass pass(process_.gate);
        if (pass.inside()) return translate(real.cuEventQuery(handle));
    }
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    real.cuThreadExchangeStreamCaptureMode(&mode);
    const OrderResult result = translate(real.cuEventQuery(handle));
    real.cuThreadExchangeStreamCaptureMode(&mode);
    return result;
}

OrderResult CudaOrder::wait_on_device(std::uint32_t index) {
    const GatePass pass(process_.gate);
    if (!pass.inside() && rule_on(Rule::capture_aside)) return {OrderStatus::refused, 0};
    return translate(real.cuCtxWaitEvent(owner_.handle, event(index)));
}

OrderResult CudaOrder::synchronize() {
    if (process_.gate.open() != 0) return {OrderStatus::refused, 0};
    const CurrentContext scope(owner_.handle);
    return translate(real.cuCtxSynchronize());
}

void CudaOrder::pause() {
    sched_yield();
}

bool CudaOrder::several_streams() const {
    return process_.created_streams.load(std::memory_order_relaxed) >= 2;
}

} // namespace cachealloc::shim
