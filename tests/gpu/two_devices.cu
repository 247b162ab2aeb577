// Two devices and one freed block: a kernel of one device still reads it while it is freed, handed
// out again, and written from the other device in every way there is between devices. Natively
// cudaFree has waited for the reader; from a pool the block must not come back before. Without peer
// access, with access enabled while blocks of before are in the pool, with blocks of after, and
// after a reset of the second device.
//
// stdout: one line a phase and "0 bytes wrong", status 0 or 1; "SKIP ..." and status 77 with one
// device. stderr: how often the block came back.
//   --reader-us N (2000): how long the reader waits   --rounds N (2)
#include "tests/gpu/late_kernels.cuh"

#include <array>
#include <vector>

namespace {

using Bytes = unsigned char*;

enum class Way {
    peer_async_far,
    peer_async_near,
    peer_wait,
    unified_async_far,
    unified_wait_far,
    kernel_far, // these two need peer access
    memset_far,
};
constexpr std::array kWays{Way::peer_async_far,    Way::peer_async_near,  Way::peer_wait,
                           Way::unified_async_far, Way::unified_wait_far, Way::kernel_far,
                           Way::memset_far};

bool needs_access(Way way) {
    return way == Way::kernel_far || way == Way::memset_far;
}

Bytes allocate(std::size_t bytes) {
    void* memory = nullptr;
    CUDA_CHECK(cudaMalloc(&memory, bytes));
    return static_cast<Bytes>(memory);
}

unsigned long long counted(const unsigned long long* on_device) {
    unsigned long long value = 0;
    CUDA_CHECK(cudaMemcpy(&value, on_device, sizeof value, cudaMemcpyDefault));
    return value;
}

/// What each device has for the whole phase.
struct Side {
    int device = 0;
    cudaStream_t reader = nullptr;
    cudaStream_t other = nullptr;
    Bytes source = nullptr; // full of what writers write
    unsigned long long* wrong = nullptr;
};

struct Settings {
    std::uint64_t reader_ns = 0;
    int rounds = 0;
};

constexpr std::array<std::size_t, 3> kSizes{4096, 1 << 20, 8 << 20};

Side make_side(int device) {
    CUDA_CHECK(cudaSetDevice(device));
    Side side;
    side.device = device;
    CUDA_CHECK(cudaStreamCreateWithFlags(&side.reader, cudaStreamNonBlocking));
    CUDA_CHECK(cudaStreamCreateWithFlags(&side.other, cudaStreamNonBlocking));
    side.source = allocate(kSizes.back());
    void* wrong = nullptr;
    CUDA_CHECK(cudaMalloc(&wrong, sizeof *side.wrong));
    side.wrong = static_cast<unsigned long long*>(wrong);
    CUDA_CHECK(cudaMemset(side.source, late::kAfter, kSizes.back()));
    CUDA_CHECK(cudaMemset(side.wrong, 0, sizeof *side.wrong));
    CUDA_CHECK(cudaDeviceSynchronize());
    return side;
}

void drop_side(const Side& side) {
    CUDA_CHECK(cudaSetDevice(side.device));
    CUDA_CHECK(cudaFree(side.source));
    CUDA_CHECK(cudaFree(side.wrong));
    CUDA_CHECK(cudaStreamDestroy(side.reader));
    CUDA_CHECK(cudaStreamDestroy(side.other));
}

void write(Way way, Bytes block, std::size_t bytes, const Side& near, const Side& far) {
    switch (way) {
    case Way::peer_async_far:
        CUDA_CHECK(
            cudaMemcpyPeerAsync(block, near.device, far.source, far.device, bytes, far.other));
        break;
    case Way::peer_async_near:
        CUDA_CHECK(
            cudaMemcpyPeerAsync(block, near.device, far.source, far.device, bytes, near.other));
        break;
    case Way::peer_wait:
        CUDA_CHECK(cudaMemcpyPeer(block, near.device, far.source, far.device, bytes));
        break;
    case Way::unified_async_far:
        CUDA_CHECK(cudaSetDevice(far.device));
        CUDA_CHECK(cudaMemcpyAsync(block, far.source, bytes, cudaMemcpyDefault, far.other));
        break;
    case Way::unified_wait_far:
        CUDA_CHECK(cudaSetDevice(far.device));
        CUDA_CHECK(cudaMemcpy(block, far.source, bytes, cudaMemcpyDefault));
        break;
    case Way::kernel_far:
        CUDA_CHECK(cudaSetDevice(far.device));
        write_bytes<<<late::kGrid, late::kBlock, 0, far.other>>>(block, bytes);
        CUDA_CHECK_LAUNCH();
        break;
    case Way::memset_far:
        CUDA_CHECK(cudaSetDevice(far.device));
        CUDA_CHECK(cudaMemsetAsync(block, late::kAfter, bytes, far.other));
        break;
    }
}

void finish(const Side& near, const Side& far) {
    for (const Side* side : {&far, &near}) {
        CUDA_CHECK(cudaSetDevice(side->device));
        CUDA_CHECK(cudaDeviceSynchronize());
    }
}

struct Tally {
    unsigned long long wrong = 0;
    int cases = 0;
    int reused = 0;
};

/// A block of `near` under a late reader, freed, handed out and written from `far`.
void one(const Settings& settings, Way way, std::size_t bytes, const Side& near, const Side& far,
         Bytes block, Tally& tally) {
    CUDA_CHECK(cudaSetDevice(near.device));
    CUDA_CHECK(cudaMemset(block, late::kBefore, bytes));
    CUDA_CHECK(cudaDeviceSynchronize());
    read_late<<<late::kGrid, late::kBlock, 0, near.reader>>>(block, bytes, late::kBefore,
                                                             settings.reader_ns, near.wrong);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaFree(block));
    const Bytes again = allocate(bytes);
    write(way, again, bytes, near, far);
    finish(near, far);
    std::vector<unsigned char> host(bytes);
    CUDA_CHECK(cudaMemcpy(host.data(), again, bytes, cudaMemcpyDeviceToHost));
    for (const unsigned char byte : host)
        tally.wrong += byte != late::kAfter;
    CUDA_CHECK(cudaFree(again));
    ++tally.cases;
    tally.reused += again == block;
}

unsigned long long phase(const char* name, const Settings& settings, const Side& a, const Side& b,
                         bool access, const std::vector<std::array<Bytes, 2>>* early) {
    Tally tally;
    for (int round = 0; round < settings.rounds; ++round) {
        for (int direction = 0; direction < 2; ++direction) {
            const Side& near = direction == 0 ? a : b;
            const Side& far = direction == 0 ? b : a;
            for (std::size_t size = 0; size < kSizes.size(); ++size) {
                for (const Way way : kWays) {
                    if (needs_access(way) && !access) continue;
                    CUDA_CHECK(cudaSetDevice(near.device));
                    // Blocks of before the peers were enabled, as long as there are any.
                    const bool is_early = early != nullptr && round == 0 && way == kWays[0];
                    const Bytes block = is_early
                                            ? (*early)[size][static_cast<std::size_t>(direction)]
                                            : allocate(kSizes[size]);
                    one(settings, way, kSizes[size], near, far, block, tally);
                }
            }
        }
    }
    for (const Side* side : {&a, &b}) {
        CUDA_CHECK(cudaSetDevice(side->device));
        tally.wrong += counted(side->wrong);
        CUDA_CHECK(cudaMemset(side->wrong, 0, sizeof *side->wrong));
    }
    std::printf("%s: %d cases, %llu bytes wrong\n", name, tally.cases, tally.wrong);
    std::fprintf(stderr, "%s: the block came back %d times\n", name, tally.reused);
    return tally.wrong;
}

void enable_access(int device, int peer) {
    CUDA_CHECK(cudaSetDevice(device));
    CUDA_CHECK(cudaDeviceEnablePeerAccess(peer, 0));
}

} // namespace

int main(int argc, char** argv) {
    Settings settings;
    settings.reader_ns =
        1000ull * static_cast<unsigned>(app::option(argc, argv, "--reader-us", 2000));
    settings.rounds = app::option(argc, argv, "--rounds", 2);
    int devices = 0;
    CUDA_CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        std::puts("SKIP two_devices: fewer than two GPUs");
        return 77;
    }
    int reach = 0;
    int back = 0;
    CUDA_CHECK(cudaDeviceCanAccessPeer(&reach, 0, 1));
    CUDA_CHECK(cudaDeviceCanAccessPeer(&back, 1, 0));
    const bool peers = reach != 0 && back != 0;

    const Side a = make_side(0);
    Side b = make_side(1);
    unsigned long long wrong = phase("no access", settings, a, b, false, nullptr);
    if (peers) {
        std::vector<std::array<Bytes, 2>> early(kSizes.size());
        for (std::size_t size = 0; size < kSizes.size(); ++size) {
            for (const int device : {0, 1}) {
                CUDA_CHECK(cudaSetDevice(device));
                early[size][static_cast<std::size_t>(device)] = allocate(kSizes[size]);
            }
        }
        enable_access(0, 1);
        enable_access(1, 0);
        wrong += phase("access enabled after the allocation", settings, a, b, true, &early);
        wrong += phase("access enabled before", settings, a, b, true, nullptr);
    } else {
        std::puts("these devices cannot reach each other: copies only");
    }

    // The second device is reset; blocks of the first keep their content and serve on.
    CUDA_CHECK(cudaSetDevice(0));
    const Bytes kept = allocate(kSizes[1]);
    CUDA_CHECK(cudaMemset(kept, late::kBefore, kSizes[1]));
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaSetDevice(1));
    CUDA_CHECK(cudaDeviceReset());
    b = make_side(1);
    wrong += phase("after a reset of the second", settings, a, b, false, nullptr);
    std::vector<unsigned char> host(kSizes[1]);
    CUDA_CHECK(cudaMemcpy(host.data(), kept, host.size(), cudaMemcpyDefault));
    for (const unsigned char byte : host)
        wrong += byte != late::kBefore;
    drop_side(b);
    drop_side(a);
    CUDA_CHECK(cudaFree(kept));
    std::printf("%llu bytes wrong\n", wrong);
    return wrong == 0 ? 0 : 1;
}
