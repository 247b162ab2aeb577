// Does what a recording must show, and says on stdout what it did:
//   alloc TYPE ADDRESS BYTES, free TYPE ADDRESS     (addresses in hex)
//
//   record_app kinds      allocates memory of every kind and gives it back
//   record_app hold       the same without giving back, then waits to be killed
//   record_app oom        asks for more than there is, of several kinds
//   record_app context    ends a context that memory is left in
//   record_app refused    gives back what is not there
//   record_app stream     stream-ordered calls on the default pool, and beside a capture
//   record_app fork       a child that calls CUDA and leaves through exit()
//   record_app threads    many threads, blocks of their own and of one another's
//   record_app nothing    asks for zero bytes
//   record_app early      the first call comes from a constructor of a library that is just opened
//   record_app none       no CUDA at all
#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

void check(CUresult result, const char* call, int line) {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    cuGetErrorName(result, &name);
    std::fprintf(stderr, "record_app:%d: %s: %s\n", line, call, name != nullptr ? name : "?");
    std::exit(1);
}

#define DRIVER_CHECK(call) check((call), #call, __LINE__)

void require(bool condition, const char* what, int line) {
    if (condition) return;
    std::fprintf(stderr, "record_app:%d: not so: %s\n", line, what);
    std::exit(1);
}

#define REQUIRE_TRUE(condition) require((condition), #condition, __LINE__)

constexpr std::size_t kGranule = std::size_t{2} << 20;

CUcontext use_primary() {
    CUcontext context = nullptr;
    DRIVER_CHECK(cuInit(0));
    DRIVER_CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CHECK(cuCtxSetCurrent(context));
    return context;
}

void said_alloc(const char* type, unsigned long long address, std::size_t bytes) {
    std::printf("alloc %s %llx %zu\n", type, address, bytes);
}

// What was allocated and how it is given back.
struct Held {
    const char* type;
    unsigned long long address;
    std::function<CUresult()> give_back;
};

class Holder {
  public:
    void add(const char* type, unsigned long long address, std::size_t bytes,
             std::function<CUresult()> give_back) {
        said_alloc(type, address, bytes);
        held_.push_back({type, address, std::move(give_back)});
    }
    void give_all_back() {
        while (!held_.empty()) {
            const Held last = held_.back();
            held_.pop_back();
            DRIVER_CHECK(last.give_back());
            std::printf("free %s %llx\n", last.type, last.address);
        }
    }

  private:
    std::vector<Held> held_;
};

unsigned long long number(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

void hold_classic(Holder& holder) {
    CUdeviceptr device = 0;
    for (const std::size_t bytes : {std::size_t{700}, 3 * kGranule}) {
        DRIVER_CHECK(cuMemAlloc(&device, bytes));
        holder.add("pooled", device, bytes, [=] { return cuMemFree(device); });
    }
    DRIVER_CHECK(cuMemAllocManaged(&device, 5000, CU_MEM_ATTACH_GLOBAL));
    holder.add("managed", device, 5000, [=] { return cuMemFree(device); });
    std::size_t pitch = 0;
    DRIVER_CHECK(cuMemAllocPitch(&device, &pitch, 100, 7, 4));
    holder.add("pitched", device, pitch * 7, [=] { return cuMemFree(device); });
}

void hold_host(Holder& holder) {
    void* host = nullptr;
    DRIVER_CHECK(cuMemAllocHost(&host, 6000));
    holder.add("pinned", number(host), 6000, [=] { return cuMemFreeHost(host); });
    DRIVER_CHECK(cuMemHostAlloc(&host, 7000, CU_MEMHOSTALLOC_PORTABLE));
    holder.add("pinned", number(host), 7000, [=] { return cuMemFreeHost(host); });
    alignas(4096) static char pages[8192];
    DRIVER_CHECK(cuMemHostRegister(pages, sizeof pages, 0));
    holder.add("pinned", number(pages), sizeof pages, [=] { return cuMemHostUnregister(pages); });
}

void hold_arrays(Holder& holder) {
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR flat{};
    flat.Width = 32;
    flat.Height = 8;
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.NumChannels = 2;
    DRIVER_CHECK(cuArrayCreate(&array, &flat));
    holder.add("array", number(array), std::size_t{32} * 8 * 8,
               [=] { return cuArrayDestroy(array); });
    CUDA_ARRAY3D_DESCRIPTOR deep{};
    deep.Width = 16;
    deep.Height = 16;
    deep.Depth = 4;
    deep.Format = CU_AD_FORMAT_HALF;
    deep.NumChannels = 1;
    DRIVER_CHECK(cuArray3DCreate(&array, &deep));
    holder.add("array", number(array), std::size_t{16} * 16 * 4 * 2,
               [=] { return cuArrayDestroy(array); });
    CUmipmappedArray levels = nullptr;
    DRIVER_CHECK(cuMipmappedArrayCreate(&levels, &deep, 2));
    holder.add("array", number(levels), std::size_t{16} * 16 * 4 * 2 + std::size_t{8} * 8 * 2 * 2,
               [=] { return cuMipmappedArrayDestroy(levels); });
}

void hold_pool(Holder& holder) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool = nullptr;
    CUstream stream = nullptr;
    CUdeviceptr device = 0;
    DRIVER_CHECK(cuMemPoolCreate(&pool, &properties));
    DRIVER_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CHECK(cuMemAllocFromPoolAsync(&device, 9000, pool, stream));
    holder.add("explicit_pool", device, 9000, [=] { return cuMemFreeAsync(device, stream); });
    DRIVER_CHECK(cuMemAllocAsync(&device, 4000, stream));
    holder.add("pooled", device, 4000, [=] { return cuMemFreeAsync(device, stream); });
}

// One piece of memory keeps its handle while it is mapped, one gives it back at once, as JAX does.
void hold_virtual(Holder& holder) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdeviceptr range = 0;
    std::array<CUmemGenericAllocationHandle, 2> handles{};
    DRIVER_CHECK(cuMemAddressReserve(&range, 2 * kGranule, 0, 0, 0));
    for (std::size_t i = 0; i < handles.size(); ++i) {
        DRIVER_CHECK(cuMemCreate(&handles[i], kGranule, &properties, 0));
        said_alloc("physical", handles[i], kGranule);
        DRIVER_CHECK(cuMemMap(range + i * kGranule, kGranule, 0, handles[i], 0));
        said_alloc("mapping", range + i * kGranule, kGranule);
    }
    DRIVER_CHECK(cuMemRelease(handles[1]));
    CUmemGenericAllocationHandle again = 0;
    DRIVER_CHECK(cuMemRetainAllocationHandle(
        &again, reinterpret_cast<void*>(static_cast<std::uintptr_t>(range))));
    REQUIRE_TRUE(again == handles[0]);
    DRIVER_CHECK(cuMemRelease(again));
    holder.add("none", range, 0, [=] {
        DRIVER_CHECK(cuMemUnmap(range, 2 * kGranule));
        std::printf("free mapping %llx\nfree mapping %llx\nfree physical %llx\n", range,
                    range + kGranule, handles[1]);
        DRIVER_CHECK(cuMemRelease(handles[0]));
        std::printf("free physical %llx\n", handles[0]);
        return cuMemAddressFree(range, 2 * kGranule);
    });
}

void hold_all(Holder& holder) {
    use_primary();
    hold_classic(holder);
    hold_host(holder);
    hold_arrays(holder);
    hold_pool(holder);
    hold_virtual(holder);
}

int kinds() {
    Holder holder;
    hold_all(holder);
    holder.give_all_back();
    return 0;
}

int hold() {
    Holder holder;
    hold_all(holder);
    std::printf("ready\n");
    std::fflush(stdout);
    for (;;)
        pause();
}

// On a device of 64 MiB: every second block of many is freed, then more is asked for than any gap
// holds.
int growing() {
    use_primary();
    constexpr std::size_t kSize = std::size_t{4} << 20;
    std::vector<CUdeviceptr> all(13);
    for (CUdeviceptr& device : all)
        DRIVER_CHECK(cuMemAlloc(&device, kSize));
    for (std::size_t i = 0; i < all.size(); i += 2)
        DRIVER_CHECK(cuMemFree(all[i]));
    DRIVER_CHECK(cuCtxSynchronize());
    CUdeviceptr large = 0;
    for (int round = 0; round < 2; ++round) {
        DRIVER_CHECK(cuMemAlloc(&large, 4 * kSize));
        DRIVER_CHECK(cuMemFree(large));
    }
    for (std::size_t i = 1; i < all.size(); i += 2)
        DRIVER_CHECK(cuMemFree(all[i]));
    DRIVER_CHECK(cuMemAlloc(&large, 15 * kSize));
    return 0;
}

int out_of_memory() {
    use_primary();
    const std::size_t bytes = std::size_t{1} << 40;
    CUdeviceptr device = 0;
    std::size_t pitch = 0;
    REQUIRE_TRUE(cuMemAlloc(&device, bytes) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE_TRUE(cuMemAllocPitch(&device, &pitch, bytes, 1, 4) == CUDA_ERROR_OUT_OF_MEMORY);
    DRIVER_CHECK(cuMemAlloc(&device, 4096));
    DRIVER_CHECK(cuMemFree(device));
    return 0;
}

int context() {
    use_primary();
    CUdeviceptr outside = 0;
    DRIVER_CHECK(cuMemAlloc(&outside, 1000));
    said_alloc("pooled", outside, 1000);
    for (int round = 0; round < 3; ++round) {
        CUcontext own = nullptr;
        CUdeviceptr device = 0;
        void* host = nullptr;
#if CUDA_VERSION >= 13000
        DRIVER_CHECK(cuCtxCreate(&own, nullptr, 0, 0));
#else
        DRIVER_CHECK(cuCtxCreate(&own, 0, 0));
#endif
        for (const std::size_t bytes : {std::size_t{4096}, kGranule, 5 * kGranule}) {
            DRIVER_CHECK(cuMemAlloc(&device, bytes));
            said_alloc("pooled", device, bytes);
        }
        DRIVER_CHECK(cuMemFree(device));
        DRIVER_CHECK(cuMemAllocManaged(&device, 5000, CU_MEM_ATTACH_GLOBAL));
        said_alloc("managed", device, 5000);
        DRIVER_CHECK(cuMemAllocHost(&host, 6000));
        said_alloc("pinned", number(host), 6000);
        DRIVER_CHECK(cuCtxDestroy(own));
    }
    DRIVER_CHECK(cuMemFree(outside));
    return 0;
}

int refused() {
    use_primary();
    CUdeviceptr device = 0;
    DRIVER_CHECK(cuMemAllocManaged(&device, 5000, CU_MEM_ATTACH_GLOBAL));
    said_alloc("managed", device, 5000);
    char stack = 0;
    REQUIRE_TRUE(cuMemFree(device + 64) != CUDA_SUCCESS);
    REQUIRE_TRUE(cuMemFreeHost(&stack) != CUDA_SUCCESS);
    REQUIRE_TRUE(cuMemHostUnregister(&stack) != CUDA_SUCCESS);
    REQUIRE_TRUE(cuMemUnmap(device, kGranule) != CUDA_SUCCESS);
    REQUIRE_TRUE(cuMemRelease(12345) != CUDA_SUCCESS);
    DRIVER_CHECK(cuMemFree(device));
    std::printf("free managed %llx\n", device);
    REQUIRE_TRUE(cuMemFree(device) != CUDA_SUCCESS);
    return 0;
}

int stream() {
    use_primary();
    CUstream first = nullptr;
    CUstream second = nullptr;
    DRIVER_CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    DRIVER_CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    CUdeviceptr device = 0;
    for (int round = 0; round < 20; ++round) {
        for (const CUstream each : {first, second}) {
            DRIVER_CHECK(cuMemAllocAsync(&device, 4096, each));
            DRIVER_CHECK(cuMemsetD8Async(device, 1, 4096, each));
            DRIVER_CHECK(cuMemFreeAsync(device, each));
        }
    }
    CUdeviceptr kept = 0;
    CUdeviceptr node = 0;
    CUgraph graph = nullptr;
    DRIVER_CHECK(cuMemAlloc(&kept, 4096));
    DRIVER_CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_RELAXED));
    DRIVER_CHECK(cuMemAllocAsync(&node, 8192, first)); // a node of the graph
    DRIVER_CHECK(cuMemFreeAsync(node, first));
    DRIVER_CHECK(cuMemFree(kept)); // set aside
    DRIVER_CHECK(cuMemAlloc(&kept, 2048));
    said_alloc("device", kept, 2048); // beside a capture the driver serves
    DRIVER_CHECK(cuStreamEndCapture(first, &graph));
    DRIVER_CHECK(cuMemFree(kept));
    DRIVER_CHECK(cuCtxSynchronize());
    return 0;
}

int forked() {
    use_primary();
    CUdeviceptr device = 0;
    DRIVER_CHECK(cuMemAlloc(&device, 4096));
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        cuMemAlloc(&device, 4096); // natively an error: CUDA does not survive a fork
        std::exit(0);
    }
    int status = 0;
    REQUIRE_TRUE(waitpid(child, &status, 0) == child && status == 0);
    DRIVER_CHECK(cuMemFree(device));
    return 0;
}

int threads() {
    CUcontext primary = use_primary();
    std::mutex mutex;
    std::vector<CUdeviceptr> shared;
    std::vector<std::thread> all;
    for (unsigned seed = 0; seed < 8; ++seed) {
        all.emplace_back([&, seed] {
            DRIVER_CHECK(cuCtxSetCurrent(primary));
            std::uint32_t random = seed + 1;
            for (int step = 0; step < 3000; ++step) {
                random = random * 1664525U + 1013904223U;
                CUdeviceptr device = 0;
                DRIVER_CHECK(cuMemAlloc(&device, 512 + (random >> 8) % 100000));
                {
                    const std::lock_guard lock(mutex);
                    shared.push_back(device);
                    std::swap(shared[(random >> 16) % shared.size()], shared.back());
                    if (shared.size() < 40) continue;
                    device = shared.back();
                    shared.pop_back();
                }
                DRIVER_CHECK(cuMemFree(device));
            }
        });
    }
    for (std::thread& thread : all)
        thread.join();
    for (const CUdeviceptr device : shared)
        DRIVER_CHECK(cuMemFree(device));
    return 0;
}

int nothing() {
    use_primary();
    CUdeviceptr device = 1;
    void* host = &device;
    DRIVER_CHECK(cuMemAllocAsync(&device, 0, nullptr));
    DRIVER_CHECK(cuMemHostAlloc(&host, 0, 0));
    REQUIRE_TRUE(device == 0 && host == nullptr);
    DRIVER_CHECK(cuMemFreeHost(nullptr));
    DRIVER_CHECK(cuMemFree(0));
    return 0;
}

int early(const char* self) {
    const std::string folder(self, std::strrchr(self, '/'));
    REQUIRE_TRUE(dlopen((folder + "/librecord_plugin.so").c_str(), RTLD_NOW) != nullptr);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    const std::string mode = argc == 2 ? argv[1] : "";
    if (mode == "kinds") return kinds();
    if (mode == "hold") return hold();
    if (mode == "growing") return growing();
    if (mode == "oom") return out_of_memory();
    if (mode == "context") return context();
    if (mode == "refused") return refused();
    if (mode == "stream") return stream();
    if (mode == "fork") return forked();
    if (mode == "threads") return threads();
    if (mode == "nothing") return nothing();
    if (mode == "early") return early(argv[0]);
    if (mode == "none") return 0;
    std::fprintf(stderr, "usage: record_app MODE\n");
    return 2;
}
