// Streams and events.
#include "tests/simcuda/runtime/state.h"

RUNTIME_API(context, cudaStreamCreate, (cudaStream_t * stream),
            { return driver.cuStreamCreate(stream, CU_STREAM_DEFAULT); })

RUNTIME_API(context, cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags),
            { return driver.cuStreamCreate(stream, flags); })

RUNTIME_API(context, cudaStreamCreateWithPriority,
            (cudaStream_t * stream, unsigned flags, int priority),
            { return driver.cuStreamCreateWithPriority(stream, flags, priority); })

RUNTIME_API(context, cudaStreamDestroy, (cudaStream_t stream),
            { return driver.cuStreamDestroy(stream); })

RUNTIME_TWINS(_ptsz, cudaStreamSynchronize, (cudaStream_t stream),
              { return driver.cuStreamSynchronize(stream); })

RUNTIME_TWINS(_ptsz, cudaStreamQuery, (cudaStream_t stream),
              { return driver.cuStreamQuery(stream); })

RUNTIME_TWINS(_ptsz, cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
              { return driver.cuStreamWaitEvent(stream, event, flags); })

RUNTIME_TWINS(_ptsz, cudaStreamGetFlags, (cudaStream_t stream, unsigned* flags),
              { return driver.cuStreamGetFlags(stream, flags); })

RUNTIME_TWINS(_ptsz, cudaStreamGetPriority, (cudaStream_t stream, int* priority),
              { return driver.cuStreamGetPriority(stream, priority); })

RUNTIME_TWINS(_ptsz, cudaStreamGetId, (cudaStream_t stream, unsigned long long* id),
              { return driver.cuStreamGetId(stream, id); })

RUNTIME_TWINS(_ptsz, cudaStreamGetDevice, (cudaStream_t stream, int* device),
              { return driver.cuStreamGetDevice(stream, device); })

RUNTIME_TWINS(_ptsz, cudaStreamAttachMemAsync,
              (cudaStream_t stream, void* address, size_t bytes, unsigned flags), {
                  return driver.cuStreamAttachMemAsync(
                      stream, reinterpret_cast<CUdeviceptr>(address), bytes, flags);
              })

RUNTIME_TWINS(_ptsz, cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void* data),
              { return driver.cuLaunchHostFunc(stream, function, data); })

namespace {

/// What a cudaStreamAddCallback carries through the driver, whose callback has its own type.
struct Callback {
    cudaStreamCallback_t function;
    void* data;
};

void run_callback(CUstream stream, CUresult status, void* data) {
    auto* callback = static_cast<Callback*>(data);
    callback->function(stream, simcuda::runtime::Result(status).code(), callback->data);
    delete callback;
}

} // namespace

RUNTIME_TWINS(_ptsz, cudaStreamAddCallback,
              (cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned flags), {
                  auto* callback = new Callback{function, data};
                  Result result = driver.cuStreamAddCallback(stream, run_callback, callback, flags);
                  if (!result.ok()) {
                      delete callback;
                  }
                  return result;
              })

RUNTIME_API(context, cudaEventCreate, (cudaEvent_t * event),
            { return driver.cuEventCreate(event, CU_EVENT_DEFAULT); })

RUNTIME_API(context, cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags),
            { return driver.cuEventCreate(event, flags); })

RUNTIME_API(context, cudaEventDestroy, (cudaEvent_t event),
            { return driver.cuEventDestroy(event); })

RUNTIME_API(context, cudaEventQuery, (cudaEvent_t event), { return driver.cuEventQuery(event); })

RUNTIME_API(context, cudaEventSynchronize, (cudaEvent_t event),
            { return driver.cuEventSynchronize(event); })

RUNTIME_API(context, cudaEventElapsedTime, (float* ms, cudaEvent_t start, cudaEvent_t end),
            { return driver.cuEventElapsedTime(ms, start, end); })

RUNTIME_TWINS(_ptsz, cudaEventRecord, (cudaEvent_t event, cudaStream_t stream),
              { return driver.cuEventRecord(event, stream); })

RUNTIME_TWINS(_ptsz, cudaEventRecordWithFlags,
              (cudaEvent_t event, cudaStream_t stream, unsigned flags),
              { return driver.cuEventRecordWithFlags(event, stream, flags); })
