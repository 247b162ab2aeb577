// Waits, captures, contexts, and the end of a program.
#include "tests/random/interpreter.h"
#include "tests/random/machine.h"
#include "tests/simcuda/control.h"

#include <algorithm>
#include <cstdio>

namespace random_programs {

namespace {

std::int32_t code(cudaError_t result) {
    if (result != cudaSuccess) (void)cudaGetLastError();
    return static_cast<std::int32_t>(result);
}

std::int32_t code(CUresult result) {
    return static_cast<std::int32_t>(result);
}

} // namespace

std::int32_t Machine::run_waits(const Operation& o) {
    const auto event = [&](std::size_t i) { return events_[static_cast<std::size_t>(o.args[i])]; };
    switch (o.verb) {
    case Verb::record:
        return code(calls(o.args[1]).record(event(0), stream(o.args[1])));
    case Verb::wait:
        return code(calls(o.args[0]).wait(stream(o.args[0]), event(1), 0));
    case Verb::sync:
        return code(calls(o.args[0]).synchronize(stream(o.args[0])));
    case Verb::sync_event:
        return code(cudaEventSynchronize(event(0)));
    case Verb::sync_device:
        return code(cudaDeviceSynchronize());
    case Verb::query:
        return code(calls(o.args[0]).query(stream(o.args[0])));
    default:
        return code(cudaEventQuery(event(0)));
    }
}

std::int32_t Machine::run_capture(const Operation& o) {
    switch (o.verb) {
    case Verb::capture: {
        constexpr cudaStreamCaptureMode kModes[] = {cudaStreamCaptureModeGlobal,
                                                    cudaStreamCaptureModeThreadLocal,
                                                    cudaStreamCaptureModeRelaxed};
        return code(calls(o.args[0]).begin_capture(stream(o.args[0]),
                                                   kModes[static_cast<std::size_t>(o.args[1])]));
    }
    case Verb::end_capture: {
        LiveGraph& made = graphs_[static_cast<std::size_t>(o.args[1])];
        const int capture = capture_;
        std::int32_t result = code(calls(o.args[0]).end_capture(stream(o.args[0]), &made.graph));
        if (result == 0) {
            result = code(cudaGraphInstantiate(&made.executable, made.graph, 0));
            made.effects = captured_[capture];
        }
        captured_.erase(capture);
        return result;
    }
    case Verb::launch: {
        const LiveGraph& graph = graphs_[static_cast<std::size_t>(o.args[0])];
        for (const auto& change : graph.effects)
            change();
        return code(calls(o.args[1]).graph_launch(graph.executable, stream(o.args[1])));
    }
    default: {
        LiveGraph& graph = graphs_[static_cast<std::size_t>(o.args[0])];
        const std::int32_t result = code(cudaGraphExecDestroy(graph.executable));
        (void)cudaGraphDestroy(graph.graph);
        graph = LiveGraph{};
        return result;
    }
    }
}

std::int32_t Machine::run_contexts(const Operation& o) {
    return o.verb == Verb::visit ? visit(o) : o.verb == Verb::publish ? publish(o) : reset();
}

// A context of its own comes, writes the block as soon as it can, and goes.
std::int32_t Machine::visit(const Operation& o) {
    constexpr std::size_t kBytes = 4096;
    LiveBlock& to = block(o.args[0]);
    const std::size_t bytes = std::min(to.size, kBytes);
    const auto address = reinterpret_cast<CUdeviceptr>(to.at);
    CUcontext context = nullptr;
    CUdeviceptr source = 0;
    CUstream far = nullptr;
    const auto try_all = [&] {
        if (const auto r = cuStreamCreate(&far, CU_STREAM_NON_BLOCKING)) return r;
        if (const auto r = cuMemAlloc(&source, kBytes)) return r;
        if (const auto r = cuMemsetD8Async(source, 7, kBytes, far)) return r;
        if (const auto r = cuMemcpyDtoDAsync(address, source, bytes, far)) return r;
        if (const auto r = cuStreamSynchronize(far)) return r;
        return cuMemFree(source);
    };
    CUresult result = cuCtxCreate(&context, nullptr, 0, static_cast<CUdevice>(o.args[1]));
    if (result != CUDA_SUCCESS) return code(result);
    result = try_all();
    const CUresult ended = cuCtxDestroy(context);
    std::fill_n(to.content.begin(), std::min(bytes, kHead), std::int16_t{7});
    return code(result != CUDA_SUCCESS ? result : ended);
}

// What an importer of the memory does makes no call in this process.
std::int32_t Machine::publish(const Operation& o) {
    LiveBlock& to = block(o.args[0]);
    cudaIpcMemHandle_t handle{};
    const std::int32_t result = code(cudaIpcGetMemHandle(&handle, to.at));
    if (result == 0) {
        keeps_memory_ = true;
        simcuda::control::host_access(to.at, to.size, true);
    }
    return result;
}

std::int32_t Machine::reset() {
    int device = 0;
    (void)cudaGetDevice(&device);
    std::int32_t result = code(cudaDeviceReset());
    if (result == 0) result = code(cudaFree(nullptr)); // a new context
    for (LiveBlock& gone : blocks_) {
        if (gone.device == device) forget(gone);
    }
    std::erase_if(left_over_, [device](const LiveBlock& b) { return b.device == device; });
    return result;
}

int Machine::clean_up() {
    const auto failed = [](const char* what, std::int32_t result) {
        std::fprintf(stderr, "random: cleaning up: %s failed: %d\n", what, result);
        return kCallFailed;
    };
    end_failures();
    for (int device = 0; device < kDevices; ++device) {
        if (!used_[static_cast<std::size_t>(device)]) continue;
        (void)cudaSetDevice(device);
        if (const auto r = code(cudaDeviceSynchronize())) return failed("cudaDeviceSynchronize", r);
    }
    for (LiveGraph& graph : graphs_) {
        if (graph.executable != nullptr) (void)cudaGraphExecDestroy(graph.executable);
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        LiveBlock& b = blocks_[i];
        if (b.at == nullptr) continue;
        (void)cudaSetDevice(b.device);
        const Operation look_at{0, Verb::check, {static_cast<std::int64_t>(i)}};
        capture_ = -1;
        if (const auto r = run_copies(look_at)) return failed("cudaMemcpy", r);
        if (const auto r = code(cudaFree(b.at))) return failed("cudaFree", r);
    }
    for (const LiveBlock& b : left_over_) {
        if (const auto r = code(cudaFree(b.at))) return failed("cudaFree", r);
    }
    int status = wrong_ ? kWrongBytes : kFine;
    for (int device = 0; device < kDevices; ++device) {
        if (!used_[static_cast<std::size_t>(device)]) continue;
        (void)cudaSetDevice(device);
        if (const auto r = code(cudaDeviceSynchronize())) return failed("cudaDeviceSynchronize", r);
        std::size_t free = 0;
        std::size_t total = 0;
        if (const auto r = code(cudaMemGetInfo(&free, &total))) return failed("cudaMemGetInfo", r);
        if (free == total || keeps_memory_) continue;
        std::fprintf(stderr, "random: device %d: %zu bytes are still taken\n", device,
                     total - free);
        if (status == kFine) status = kMemoryLeft;
    }
    return status;
}

} // namespace random_programs
