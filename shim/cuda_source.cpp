#include "shim/cuda_source.h"

#include "shim/driver.h"
#include "shim/driver_time.h"
#include "shim/escapes.h"
#include "shim/foreign_writers.h"
#include "shim/process.h"

namespace cachealloc::shim {

CudaSource::CudaSource(Process& process, ContextPool& owner)
    : process_(process), owner_(owner),
      mapped_(owner.handle, owner.device, process.peers, process.calls.mapping) {}

// At each growth: rare enough, and no program runs long without one.
void CudaSource::look_for_unseen_work() {
    if (process_.total_order.may_wait() && (unseen_submitters_present() || escapes_present())) {
        process_.total_order.leave_to_unseen_work();
    }
    if (foreign_writers_present()) {
        process_.total_order.leave(); // first: streams yet to come wait for what was unfenced
        owner_.pool.enter_finished(false);
    }
}

SourceResult CudaSource::allocate(std::uint64_t bytes) {
    look_for_unseen_work();
    if (process_.options.expandable_segments) mapped_.explain();
    const CurrentContext scope(owner_.handle);
    CUdeviceptr address = 0;
    const auto ask = [&] {
        process_.calls.alloc.fetch_add(1, std::memory_order_relaxed);
        const DriverTime time(process_.calls.alloc_ns);
        return real.cuMemAlloc_v2(&address, bytes);
    };
    CUresult result = ask();
    if (result == CUDA_ERROR_OUT_OF_MEMORY && process_.options.expandable_segments &&
        mapped_.give_back_leftovers()) {
        result = ask();
    }
    if (result == CUDA_SUCCESS) {
        owner_.order.make_events_ahead();
        return {SourceStatus::done, address, 0};
    }
    return {result == CUDA_ERROR_OUT_OF_MEMORY ? SourceStatus::out_of_memory : SourceStatus::failed,
            0, static_cast<int>(result)};
}

SourceResult CudaSource::map(DeviceAddress address, std::uint64_t bytes, std::uint64_t piece) {
    look_for_unseen_work();
    const SourceResult result = mapped_.map(address, bytes, piece);
    if (result.status == SourceStatus::done) owner_.order.make_events_ahead();
    return result;
}

SourceResult CudaSource::alias(const PieceRun* runs, std::uint32_t count) {
    look_for_unseen_work();
    return mapped_.alias(runs, count);
}

std::uint64_t CudaSource::process_bytes() {
    ProcessMemory::Device device = measured_.load(std::memory_order_relaxed);
    if (device == nullptr) {
        char bus_id[32] = "";
        if (!real.cuDeviceGetPCIBusId ||
            real.cuDeviceGetPCIBusId(bus_id, sizeof bus_id, owner_.device) != CUDA_SUCCESS) {
            return 0;
        }
        device = process_.memory.device(bus_id);
        measured_.store(device, std::memory_order_relaxed);
    }
    return process_.memory.bytes(device);
}

SourceResult CudaSource::release(DeviceAddress address, std::uint64_t) {
    const CurrentContext scope(owner_.handle);
    process_.calls.free.fetch_add(1, std::memory_order_relaxed);
    const CUresult result = [&] {
        const DriverTime time(process_.calls.free_ns);
        return real.cuMemFree_v2(address);
    }();
    if (result == CUDA_SUCCESS) return {};
    return {SourceStatus::failed, 0, static_cast<int>(result)};
}

} // namespace cachealloc::shim
