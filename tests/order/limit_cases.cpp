// The known limits: programs that are right natively and are not under the shim, each with the
// option that helps. The runs with the status of the damage show that the limit is still there: one
// that is gone must leave README.md too.
//
// A stream that waits for a value stands for a persistent kernel that spins on a flag of the
// host's.
#include "tests/order/cases.h"
#include "tests/simcuda/control.h"

#include <dlfcn.h>

namespace order {

namespace {

/// A flag in pinned memory, used through the one address that host and device share.
struct Flag {
    volatile cuuint32_t* host = nullptr;
    Flag() {
        void* memory = nullptr;
        ORDER_CHECK(cudaHostAlloc(&memory, sizeof *host, 0));
        host = static_cast<volatile cuuint32_t*>(memory);
        *host = 0;
    }
    void await(cudaStream_t stream) const {
        ORDER_CHECK(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(host), 1,
                                        CU_STREAM_WAIT_VALUE_EQ));
    }
    void raise() const {
        *host = 1;
        simcuda::control::host_access(const_cast<cuuint32_t*>(host), sizeof *host, true);
    }
};

/// A kernel writes host memory through its host pointer, and the program reads it after a cudaFree
/// of something else, without a synchronisation: natively the free has waited for the kernel.
void kernel_writes(Byte* host) {
    const cudaStream_t stream = make_stream();
    Byte* const other = allocate();
    drain();
    ORDER_CHECK(fill(stream, host, kNew, 4096, kLateNs));
    release(other);
    simcuda::control::host_access(host, 4096, false);
    ORDER_REQUIRE(host[0] == kNew && host[4095] == kNew, kWrongContent);
}

void kernel_writes_pinned() {
    void* memory = nullptr;
    ORDER_CHECK(cudaHostAlloc(&memory, 4096, 0));
    kernel_writes(static_cast<Byte*>(memory));
}

void kernel_writes_registered() {
    alignas(4096) static Byte memory[4096];
    ORDER_CHECK(cudaHostRegister(memory, sizeof memory, 0));
    kernel_writes(memory);
}

/// A kernel that runs already is handed a new allocation through a mailbox. A barrier holds up only
/// what comes later.
void mailbox() {
    const cudaStream_t reader = make_stream();
    const cudaStream_t persistent = make_stream();
    const Flag mail;
    Byte* const out = allocate();
    Byte* const block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    release(block);
    // What it will find in the mailbox is written here already, since a twin must know.
    mail.await(persistent);
    ORDER_CHECK(fill(persistent, block, kNew, kBytes, 0));
    ORDER_REQUIRE(allocate() == block, kNotReused);
    mail.raise();
    drain();
}

/// A kernel runs on the legacy stream until the program has heard from another stream, which is the
/// first that it creates. Until then no free needed a fence, so the new stream waits for all work.
void persistent_on_legacy() {
    const Flag stop;
    Byte* const out = allocate();
    Byte* block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    ORDER_CHECK(read_late(nullptr, block, out, kBytes, kLateNs));
    block = reuse(block);
    stop.await(nullptr);
    const cudaStream_t stream = make_stream();
    ORDER_CHECK(fill(stream, out + kBytes / 2, kNew, 16, 0));
    ORDER_CHECK(cudaStreamSynchronize(stream));
    stop.raise();
    drain();
}

/// Memory that the pool keeps is given back to make room, which waits as a cudaFree: for a kernel
/// that runs until after the allocation.
void room_waits() {
    const cudaStream_t stream = make_stream();
    const Flag stop;
    release(allocate(std::size_t{40} << 20));
    drain();
    stop.await(stream);
    Byte* const large = allocate(std::size_t{50} << 20);
    stop.raise();
    drain();
    release(large);
}

/// A library loaded with RTLD_DEEPBIND brings the second stream, and nothing here sees it: blocks
/// are handed out as if all work were ordered, until the pool grows and looks at what is loaded.
void deepbind(bool seen) {
    const cudaStream_t reader = make_stream(cudaStreamDefault);
    Byte* const out = allocate();
    Byte* block = allocate();
    ORDER_CHECK(cudaMemset(block, kOld, kBytes));
    drain();
    void* const plugin = dlopen(ORDER_ESCAPE_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    ORDER_REQUIRE(plugin != nullptr, kCallFailed);
    const auto escape_fill = reinterpret_cast<int (*)(CUdeviceptr, std::size_t, unsigned char)>(
        dlsym(plugin, "escape_fill"));
    if (seen) allocate(); // the pool grows, and looks around
    ORDER_CHECK(read_late(reader, block, out, kBytes, kLateNs));
    block = reuse(block);
    ORDER_REQUIRE(escape_fill(reinterpret_cast<CUdeviceptr>(block), kBytes, kNew) == 0,
                  kCallFailed);
    drain();
}

constexpr Case kCases[] = {
    {"limit_pinned", kernel_writes_pinned},
    {"limit_registered", kernel_writes_registered},
    {"limit_mailbox", mailbox},
    {"limit_legacy", persistent_on_legacy},
    {"limit_room", room_waits},
    {"limit_deepbind", [] { deepbind(false); }},
    {"deepbind_seen", [] { deepbind(true); }},
};

} // namespace

std::span<const Case> limit_cases() {
    return kCases;
}

} // namespace order
