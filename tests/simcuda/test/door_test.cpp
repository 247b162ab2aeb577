// How programs find entry points, and what happens at a process's edges: fork, exit, deadlock.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "fixture.h"

using namespace simtest;

namespace {

void* ask(const char* name, int version, cuuint64_t flags,
          CUdriverProcAddressQueryResult* status = nullptr) {
    void* p = nullptr;
    cuGetProcAddress(name, &p, version, flags, status);
    return p;
}

void* exported(const char* name) {
    return dlsym(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY), name);
}

// Runs this program again with one hidden test; its exit status.
int run_self(const char* test, const char* settings) {
    const std::string command = std::string("SIMCUDA=") + settings + " /proc/" +
                                std::to_string(getpid()) + "/exe '" + test + "' > /dev/null 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace

TEST_CASE("cuGetProcAddress gives the address of the versioned name") {
    struct Row {
        const char* base;
        int version;
        cuuint64_t flags;
        const char* symbol;
    };
    const Row rows[] = {
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
        {"cuMemFree", 3020, 0, "cuMemFree_v2"},
        {"cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"},
        {"cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"},
        {"cuMemFreeAsync", 13000, 2, "cuMemFreeAsync_ptsz"},
        {"cuLaunchKernel", 13000, 0, "cuLaunchKernel"},
        {"cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"},
        {"cuMemcpyHtoD", 13000, 0, "cuMemcpyHtoD_v2"},
        {"cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"},
        {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
        {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
        {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
        {"cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags"},
        {"cuStreamWriteValue32", 13000, 2, "cuStreamWriteValue32_v2_ptsz"},
    };
    for (const Row& row : rows) {
        INFO(row.base << " " << row.version << " " << row.flags);
        CHECK(ask(row.base, row.version, row.flags) != nullptr);
        CHECK(ask(row.base, row.version, row.flags) == exported(row.symbol));
    }
}

TEST_CASE("what cuGetProcAddress does not find") {
    CUdriverProcAddressQueryResult status{};
    CHECK(ask("", 0, 0, &status) == nullptr);
    CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(ask("", 0, 0) == nullptr);
    CHECK(ask("cuNoSuchCall", 13000, 0, &status) == nullptr);
    CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(ask("cuMemAllocAsync", 11000, 0, &status) == nullptr);
    CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CHECK(ask("cuCtxRecordEvent", 12050, 0, &status) != nullptr);
    control::set("driver", 12040);
    CHECK(ask("cuCtxRecordEvent", 12040, 0, &status) == nullptr);
    control::set("driver", 13000);
    void* p = nullptr;
    CHECK(cuGetProcAddress("cuInit", &p, 14000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
    const void* table = &p;
    const CUuuid id{};
    CHECK(cuGetExportTable(&table, &id) != CUDA_SUCCESS);
    CHECK(table == nullptr);
}

TEST_CASE("a forked child is told that there is no CUDA, at once") {
    Device device;
    const pid_t child = fork();
    if (child == 0) {
        CUdeviceptr p = 0;
        _exit(cuMemAlloc(&p, 512) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

// Ran by the tests below in a process of their own.
TEST_CASE("leaves a race behind", "[.][race-at-exit]") {
    CUcontext ctx = nullptr;
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&ctx, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(ctx) == CUDA_SUCCESS);
    const CUdeviceptr p = alloc(4096);
    REQUIRE(cuMemsetD8Async(p, 1, 64, stream()) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD8Async(p, 2, 64, stream()) == CUDA_SUCCESS);
}
TEST_CASE("leaves nothing behind", "[.][clean-exit]") {
    Device device;
}
TEST_CASE("waits for what nobody does", "[.][deadlock]") {
    Device device;
    const CUdeviceptr p = alloc(512);
    REQUIRE(cuMemsetD8(p, 0, 512) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitValue32(nullptr, p, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    cuCtxSynchronize();
}

TEST_CASE("findings decide the exit status") {
    CHECK(run_self("[clean-exit]", "seed:1") == 0);
    CHECK(run_self("[race-at-exit]", "seed:1") == 86);
    CHECK(run_self("[race-at-exit]", "expect_races:1") == 0);
    CHECK(run_self("[deadlock]", "deadlock_s:1") == 87);
}
