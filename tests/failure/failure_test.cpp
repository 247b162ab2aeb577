#include "tests/simcuda/control.h"

#include <catch2/catch.hpp>
#include <cuda.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace control = simcuda::control;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kDevice = 64 * kMiB; // SIMCUDA=memory_mb
constexpr std::uint64_t kSeed = 20261;

bool configured(const char* text) {
    const char* const conf = std::getenv("CACHEALLOC_CONF");
    return conf != nullptr && std::strstr(conf, text) != nullptr;
}

// Which calls fail, how, and in which configuration an undisturbed run makes them.
enum class Made { classic, expandable, fenced };
struct Row {
    const char* entry;
    CUresult code;
    Made made;
};
constexpr Row kRows[] = {
    {"cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY, Made::classic},
    {"cuMemAlloc_v2", CUDA_ERROR_NOT_SUPPORTED, Made::classic},
    {"cuMemFree_v2", CUDA_ERROR_NOT_SUPPORTED, Made::classic},
    {"cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY, Made::expandable},
    {"cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY, Made::expandable},
    {"cuMemCreate", CUDA_ERROR_NOT_SUPPORTED, Made::expandable},
    {"cuMemMap", CUDA_ERROR_OUT_OF_MEMORY, Made::expandable},
    {"cuMemMap", CUDA_ERROR_UNKNOWN, Made::expandable},
    {"cuMemSetAccess", CUDA_ERROR_OUT_OF_MEMORY, Made::expandable},
    {"cuMemSetAccess", CUDA_ERROR_UNKNOWN, Made::expandable},
    {"cuMemUnmap", CUDA_ERROR_UNKNOWN, Made::expandable},
    {"cuMemRelease", CUDA_ERROR_UNKNOWN, Made::expandable},
    {"cuMemAddressFree", CUDA_ERROR_UNKNOWN, Made::expandable},
    {"cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY, Made::fenced},
    {"cuCtxRecordEvent", CUDA_ERROR_OUT_OF_MEMORY, Made::fenced},
    {"cuCtxWaitEvent", CUDA_ERROR_OUT_OF_MEMORY, Made::fenced},
    {"cuEventQuery", CUDA_ERROR_OUT_OF_MEMORY, Made::fenced},
};

// A primary context that ends with it, with two streams whose work nothing orders.
class Program {
  public:
    explicit Program(CUresult code) : code_(code) {
        CUcontext context = nullptr;
        REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
        for (CUstream& stream : streams_)
            REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    }
    ~Program() {
        CHECK(cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
        CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // Fragments what it holds, so that there is splitting, joining, growth and giving back.
    void run() {
        constexpr std::array<std::size_t, 8> kSizes = {512,      60'000,   900'000,  3 * kMiB,
                                                       5 * kMiB, 8 * kMiB, 9 * kMiB, 21 * kMiB};
        for (int i = 0; i < 60; ++i) {
            if (blocks_.size() > 9 || (!blocks_.empty() && random_() % 3 == 0))
                free_one(random_() % blocks_.size());
            allocate(kSizes[random_() % kSizes.size()]);
            if (i == 20) overload();
            if (i == 40) gaps();
        }
    }

    // After the failures: all memory can be had again.
    void finish() {
        while (!blocks_.empty())
            REQUIRE(free_one(blocks_.size() - 1));
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        CUdeviceptr all = 0;
        CHECK(cuMemAlloc_v2(&all, kDevice - 4 * kMiB) == CUDA_SUCCESS);
        if (all != 0) CHECK(cuMemFree_v2(all) == CUDA_SUCCESS);
    }

  private:
    struct Block {
        CUdeviceptr address;
        std::size_t bytes;
    };

    void allocate(std::size_t bytes) {
        CUdeviceptr address = 0;
        const CUresult result = cuMemAlloc_v2(&address, bytes);
        if (result != CUDA_SUCCESS) {
            CHECK((result == CUDA_ERROR_OUT_OF_MEMORY || result == code_));
            return;
        }
        CHECK(address % 512 == 0);
        blocks_.push_back({address, bytes});
        use(blocks_.back());
    }
    // Its first and its last bytes, on either stream.
    void use(const Block& block) {
        const CUstream stream = streams_[random_() % 2];
        const std::size_t bytes = block.bytes < 4096 ? block.bytes : 4096;
        REQUIRE(cuMemsetD8Async(block.address, 7, bytes, stream) == CUDA_SUCCESS);
        REQUIRE(cuMemsetD8Async(block.address + block.bytes - bytes, 7, bytes, stream) ==
                CUDA_SUCCESS);
    }
    bool free_one(std::size_t index) {
        const CUresult result = cuMemFree_v2(blocks_[index].address);
        if (result != CUDA_SUCCESS) {
            CHECK((result == code_ || result == CUDA_ERROR_UNKNOWN)); // it is live as before
            return false;
        }
        blocks_[index] = blocks_.back();
        blocks_.pop_back();
        return true;
    }
    // More than there is.
    void overload() {
        CUdeviceptr address = 0;
        const CUresult result = cuMemAlloc_v2(&address, kDevice);
        CHECK((result == CUDA_ERROR_OUT_OF_MEMORY || result == code_));
    }
    // Many of one size, every second one freed; then what only fits into several gaps.
    void gaps() {
        while (!blocks_.empty() && free_one(0)) {
        }
        for (int i = 0; i < 12; ++i)
            allocate(4 * kMiB);
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            free_one(i);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        for (int i = 0; i < 3; ++i)
            allocate(8 * kMiB);
    }

    CUstream streams_[2] = {};
    const CUresult code_;
    std::mt19937_64 random_{kSeed};
    std::vector<Block> blocks_;
};

// Returns how often each row's entry was called.
std::vector<std::uint64_t> undisturbed() {
    Program program(CUDA_SUCCESS);
    control::reset_calls();
    program.run();
    std::vector<std::uint64_t> calls;
    for (const Row& row : kRows)
        calls.push_back(control::calls(row.entry));
    program.finish();
    return calls;
}

void disturbed(const Row& row, std::uint64_t nth, std::uint64_t count) {
    INFO(row.entry << ": call " << nth << " and " << count - 1 << " more fail with " << row.code);
    const std::uint64_t before = control::get("used_bytes");
    control::forget_findings();
    {
        Program program(row.code);
        control::fail(row.entry, nth, row.code, count);
        program.run();
        control::fail(row.entry, 0, row.code, 0);
        program.finish();
    }
    CHECK(control::races() == 0);
    CHECK(control::errors() == 0);
    CHECK(control::get("used_bytes") == before);
}

bool expected(Made made) {
    const bool shim = std::getenv("LD_PRELOAD") != nullptr && configured("expandable_segments");
    const bool expandable = configured("expandable_segments:True");
    switch (made) {
    case Made::classic:
        return !shim || !expandable;
    case Made::expandable:
        return shim && expandable;
    case Made::fenced:
        return shim && configured("free:async");
    }
    return false;
}

} // namespace

TEST_CASE("every call of the driver may fail, once or from then on") {
    REQUIRE(control::simulated());
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    const std::vector<std::uint64_t> calls = undisturbed();
    std::size_t made = 0;
    for (std::size_t i = 0; i < std::size(kRows); ++i) {
        const Row& row = kRows[i];
        UNSCOPED_INFO(row.entry << ": " << calls[i]);
        if (calls[i] != 0) ++made;
        for (std::uint64_t nth = 1; nth <= calls[i]; ++nth) {
            disturbed(row, nth, 1);
            disturbed(row, nth, 1'000'000);
        }
    }
    for (std::size_t i = 0; i < std::size(kRows); ++i) {
        INFO(kRows[i].entry);
        if (expected(kRows[i].made)) CHECK(calls[i] != 0);
    }
    CHECK(made != 0);
}
