#include "tests/random/machine.h"

#include "tests/random/interpreter.h"
#include "tests/simcuda/control.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace random_programs {

namespace {

std::int32_t code(cudaError_t result) {
    if (result != cudaSuccess) (void)cudaGetLastError();
    return static_cast<std::int32_t>(result);
}

std::int32_t code(CUresult result) {
    return static_cast<std::int32_t>(result); // the numbers of both interfaces agree
}

/// What an injected failure may hit, by its number in a program.
constexpr struct {
    const char* name;
    CUresult code;
} kEntries[] = {
    {"cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY},     {"cuCtxRecordEvent", CUDA_ERROR_OUT_OF_MEMORY},
    {"cuCtxWaitEvent", CUDA_ERROR_OUT_OF_MEMORY},    {"cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY},
    {"cuMemAllocAsync", CUDA_ERROR_OUT_OF_MEMORY},   {"cuMemFree_v2", CUDA_ERROR_INVALID_VALUE},
    {"cuStreamWaitEvent", CUDA_ERROR_OUT_OF_MEMORY}, {"cuEventRecord", CUDA_ERROR_OUT_OF_MEMORY},
};

void fill_content(Content& content, std::size_t bytes, std::int64_t tag) {
    std::fill_n(content.begin(), std::min(bytes, kHead), static_cast<std::int16_t>(tag));
}

void copy_content(Content& to, const Content& from, std::size_t bytes) {
    std::copy_n(from.begin(), std::min(bytes, kHead), to.begin());
}

constexpr std::size_t kRow = 32;
constexpr std::size_t kPitch = 64;

std::size_t rows(const LiveBlock& a, const LiveBlock& b) {
    return std::min({a.size / kPitch, b.size / kPitch, std::size_t{4}});
}

void count_call(void* counter) {
    ++*static_cast<int*>(counter);
}

} // namespace

thread_local int Machine::capture_ = -1;

Machine::Machine() {
    for (LiveHost& buffer : hosts_)
        buffer.content.fill(-1);
    for (std::size_t i = 0; i < pageable_.size(); ++i)
        hosts_[kPinned + i].at = pageable_[i].data();
}

cudaStream_t Machine::stream(std::int64_t name) const {
    return name == kPerThread ? cudaStreamPerThread
           : name <= 0        ? nullptr
                              : streams_[static_cast<std::size_t>(name)];
}

const Calls& Machine::calls(std::int64_t stream) {
    return stream == kPerThreadEntry ? kPerThreadCalls : kOrdinaryCalls;
}

bool Machine::lacks(const Operation& o) const {
    if (o.verb == Verb::malloc || o.verb == Verb::malloc_async || o.verb == Verb::pinned)
        return false;
    const std::string_view kinds = arguments_of(o.verb);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        const auto name = static_cast<std::size_t>(o.args[i]);
        if (kinds[i] == 'b' && blocks_[name].at == nullptr) return true;
        if (kinds[i] == 'h' && hosts_[name].at == nullptr) return true;
    }
    return false;
}

// Keeps the order that an operation without its buffer would have made.
std::int32_t Machine::stand_in(const Operation& o) {
    const std::string_view kinds = arguments_of(o.verb);
    const std::size_t at = kinds.find('s');
    const std::int64_t on = at == std::string_view::npos ? kLegacy : o.args[at];
    const bool waits = o.verb == Verb::h2d_now || o.verb == Verb::d2h_now ||
                       o.verb == Verb::check || (o.verb == Verb::d2h && o.args[0] >= kPinned);
    if (o.verb == Verb::free || o.verb == Verb::visit) {
        (void)cudaDeviceSynchronize();
    } else if (kinds.find('b') != std::string_view::npos && o.verb != Verb::publish) {
        (void)launch_fill(calls(on), stream(on), nullptr, 0, 0, 0);
        if (waits) (void)calls(on).synchronize(stream(on));
    }
    return kLeftOut;
}

void Machine::effect(std::function<void()> change) {
    if (capture_ >= 0) {
        captured_[capture_].push_back(std::move(change));
    } else {
        change();
    }
}

void Machine::forget(LiveBlock& block) {
    block.at = nullptr;
    block.content.fill(-1);
}

void Machine::end_failures() {
    for (const auto& entry : kEntries)
        simcuda::control::fail(entry.name, 0, 0, 0);
}

std::int32_t Machine::run(const Operation& o, int capture) {
    capture_ = capture;
    if (lacks(o)) return stand_in(o);
    switch (o.verb) {
    case Verb::device:
    case Verb::stream:
    case Verb::destroy:
    case Verb::event:
    case Verb::unevent:
    case Verb::peers:
    case Verb::fail:
    case Verb::advance:
        return run_objects(o);
    case Verb::malloc:
    case Verb::free:
    case Verb::malloc_async:
    case Verb::free_async:
    case Verb::pinned:
    case Verb::unpinned:
    case Verb::set_host:
    case Verb::check_host:
        return run_memory(o);
    case Verb::fill:
    case Verb::overlap:
    case Verb::copy:
    case Verb::memset:
    case Verb::memset_now:
    case Verb::host_func:
    case Verb::await:
    case Verb::signal:
    case Verb::write_value:
        return run_work(o);
    case Verb::record:
    case Verb::wait:
    case Verb::sync:
    case Verb::sync_event:
    case Verb::sync_device:
    case Verb::query:
    case Verb::query_event:
        return run_waits(o);
    case Verb::capture:
    case Verb::end_capture:
    case Verb::launch:
    case Verb::ungraph:
        return run_capture(o);
    case Verb::visit:
    case Verb::publish:
    case Verb::reset:
        return run_contexts(o);
    default:
        return run_copies(o);
    }
}

std::int32_t Machine::run_objects(const Operation& o) {
    const auto name = static_cast<std::size_t>(o.args[0]);
    switch (o.verb) {
    case Verb::device:
        used_[name] = true;
        return code(cudaSetDevice(static_cast<int>(name)));
    case Verb::stream:
        return code(cudaStreamCreateWithFlags(
            &streams_[name], o.args[1] == 1 ? cudaStreamNonBlocking : cudaStreamDefault));
    case Verb::destroy:
        return code(cudaStreamDestroy(streams_[name]));
    case Verb::event:
        return code(cudaEventCreateWithFlags(&events_[name], cudaEventDisableTiming));
    case Verb::unevent:
        return code(cudaEventDestroy(events_[name]));
    case Verb::peers:
        return code(cudaDeviceEnablePeerAccess(static_cast<int>(name), 0));
    case Verb::fail: {
        const auto& entry = kEntries[name % std::size(kEntries)];
        if (entry.name == std::string_view("cuMemFree_v2")) keeps_memory_ = true;
        simcuda::control::fail(entry.name, static_cast<std::uint64_t>(o.args[1]), entry.code,
                               static_cast<std::uint64_t>(o.args[2]));
        return 0;
    }
    default:
        simcuda::control::advance_ns(static_cast<std::uint64_t>(o.args[0]));
        return 0;
    }
}

std::int32_t Machine::run_memory(const Operation& o) {
    const auto name = static_cast<std::size_t>(o.args[0]);
    switch (o.verb) {
    case Verb::malloc:
    case Verb::malloc_async: {
        LiveBlock& made = blocks_[name];
        if (made.at != nullptr) left_over_.push_back(made);
        forget(made);
        made.size = static_cast<std::size_t>(o.args[1]);
        (void)cudaGetDevice(&made.device);
        used_[static_cast<std::size_t>(made.device)] = true;
        if (o.verb == Verb::malloc) return code(cudaMalloc(&made.at, made.size));
        return code(calls(o.args[2]).malloc_async(&made.at, made.size, stream(o.args[2])));
    }
    case Verb::free:
    case Verb::free_async: {
        const std::int32_t result =
            o.verb == Verb::free
                ? code(cudaFree(blocks_[name].at))
                : code(calls(o.args[1]).free_async(blocks_[name].at, stream(o.args[1])));
        // One that was not freed stays the program's; a capture's refusal is no surprise to it.
        if (result == 0) forget(blocks_[name]);
        return result;
    }
    case Verb::pinned: {
        void* at = nullptr;
        const std::int32_t result = code(cudaHostAlloc(&at, kHostBytes, cudaHostAllocPortable));
        hosts_[name].at = static_cast<unsigned char*>(at);
        hosts_[name].content.fill(-1);
        return result;
    }
    case Verb::unpinned: {
        unsigned char* const at = std::exchange(hosts_[name].at, nullptr);
        return code(cudaFreeHost(at));
    }
    case Verb::set_host:
        simcuda::control::host_access(hosts_[name].at, kHostBytes, true);
        std::memset(hosts_[name].at, static_cast<int>(o.args[1]), kHostBytes);
        fill_content(hosts_[name].content, kHead, o.args[1]);
        return 0;
    default:
        simcuda::control::host_access(hosts_[name].at, kHostBytes, false);
        look(hosts_[name].content, hosts_[name].at, kHead, "h", o.args[0]);
        return 0;
    }
}

std::int32_t Machine::run_work(const Operation& o) {
    switch (o.verb) {
    case Verb::fill:
    case Verb::overlap:
        effect([this, o] {
            fill_content(block(o.args[0]).content, block(o.args[0]).size, o.args[2]);
        });
        return code(launch_fill(calls(o.args[1]), stream(o.args[1]), block(o.args[0]).at,
                                block(o.args[0]).size, static_cast<unsigned char>(o.args[2]),
                                static_cast<std::uint64_t>(o.args[3]), o.verb == Verb::overlap));
    case Verb::copy: {
        LiveBlock& to = block(o.args[0]);
        LiveBlock& from = block(o.args[1]);
        const std::size_t bytes = std::min(to.size, from.size);
        effect([&to, &from, bytes] { copy_content(to.content, from.content, bytes); });
        return code(launch_copy(calls(o.args[2]), stream(o.args[2]), to.at, to.size, from.at,
                                from.size, static_cast<std::uint64_t>(o.args[3])));
    }
    case Verb::memset:
    case Verb::memset_now: {
        LiveBlock& to = block(o.args[0]);
        const std::int64_t tag = o.verb == Verb::memset ? o.args[2] : o.args[1];
        effect([&to, tag] { fill_content(to.content, to.size, tag); });
        if (o.verb == Verb::memset_now)
            return code(cudaMemset(to.at, static_cast<int>(tag), to.size));
        return code(calls(o.args[1]).memset_async(to.at, static_cast<int>(tag), to.size,
                                                  stream(o.args[1])));
    }
    case Verb::host_func: {
        static int called = 0;
        return code(calls(o.args[0]).host_func(stream(o.args[0]), count_call, &called));
    }
    default:
        break;
    }
    // Flags: pinned memory of their own, made when a stream first waits for one.
    std::uint32_t*& flag = flags_[static_cast<std::size_t>(o.args[1])];
    if (flag == nullptr) {
        void* at = nullptr;
        const std::int32_t result = code(cudaHostAlloc(&at, sizeof *flag, cudaHostAllocPortable));
        if (result != 0) return result;
        flag = static_cast<std::uint32_t*>(at);
        *flag = 0;
    }
    const auto at = reinterpret_cast<CUdeviceptr>(flag);
    const Calls& how = calls(o.args[0]);
    switch (o.verb) {
    case Verb::await:
        return code(how.wait_value(stream(o.args[0]), at, 1, CU_STREAM_WAIT_VALUE_AND));
    case Verb::signal:
        return code(how.memset_async(flag, 0xFF, sizeof *flag, stream(o.args[0])));
    default:
        return code(how.write_value(stream(o.args[0]), at, 1, 0));
    }
}

std::int32_t Machine::run_copies(const Operation& o) {
    const std::string_view kinds = arguments_of(o.verb);
    const std::int64_t on = kinds.size() > 2 ? o.args[2] : kLegacy;
    const bool now = kinds.size() < 3;
    if (o.verb == Verb::check) {
        unsigned char got[kHead];
        LiveBlock& from = block(o.args[0]);
        const std::size_t bytes = std::min(from.size, kHead);
        const std::int32_t result = code(cudaMemcpy(got, from.at, bytes, cudaMemcpyDeviceToHost));
        if (result == 0) look(from.content, got, bytes, "b", o.args[0]);
        return result;
    }
    const bool to_host = kinds[0] == 'h';
    const bool from_host = kinds[1] == 'h';
    Content& to = to_host ? host(o.args[0]).content : block(o.args[0]).content;
    Content& from = from_host ? host(o.args[1]).content : block(o.args[1]).content;
    void* const to_at = to_host ? host(o.args[0]).at : block(o.args[0]).at;
    void* const from_at = from_host ? host(o.args[1]).at : block(o.args[1]).at;
    const std::size_t bytes = std::min(to_host ? kHostBytes : block(o.args[0]).size,
                                       from_host ? kHostBytes : block(o.args[1]).size);
    if (o.verb == Verb::plane || o.verb == Verb::plane_now) {
        const std::size_t height = rows(block(o.args[0]), block(o.args[1]));
        effect([&to, &from, height] {
            for (std::size_t row = 0; row < height; ++row)
                std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(row * kPitch), kRow,
                            to.begin() + static_cast<std::ptrdiff_t>(row * kPitch));
        });
        if (now)
            return code(cudaMemcpy2D(to_at, kPitch, from_at, kPitch, kRow, height,
                                     cudaMemcpyDeviceToDevice));
        return code(calls(on).memcpy_2d_async(to_at, kPitch, from_at, kPitch, kRow, height,
                                              cudaMemcpyDeviceToDevice, stream(on)));
    }
    const std::size_t copied = std::min(bytes, kCopyBytes);
    if (!to_host || host(o.args[0]).at != nullptr)
        effect([&to, &from, copied] { copy_content(to, from, copied); });
    if (o.verb == Verb::peer || o.verb == Verb::peer_now) {
        const int to_device = block(o.args[0]).device;
        const int from_device = block(o.args[1]).device;
        if (now) return code(cudaMemcpyPeer(to_at, to_device, from_at, from_device, copied));
        return code(calls(on).memcpy_peer_async(to_at, to_device, from_at, from_device, copied,
                                                stream(on)));
    }
    const cudaMemcpyKind kind = to_host     ? cudaMemcpyDeviceToHost
                                : from_host ? cudaMemcpyHostToDevice
                                            : cudaMemcpyDefault;
    if (now) return code(cudaMemcpy(to_at, from_at, copied, kind));
    return code(calls(on).memcpy_async(to_at, from_at, copied, kind, stream(on)));
}

void Machine::look(const Content& wanted, const unsigned char* got, std::size_t bytes,
                   const char* kind, std::int64_t name) {
    for (std::size_t i = 0; i < std::min(bytes, kHead); ++i) {
        if (wanted[i] < 0 || wanted[i] == got[i]) continue;
        std::fprintf(stderr, "random: byte %zu of %s%lld is %d instead of %d\n", i, kind,
                     static_cast<long long>(name), got[i], wanted[i]);
        wrong_ = true;
        return;
    }
}

} // namespace random_programs
