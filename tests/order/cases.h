// What the ordering cases share: checked calls, buffers, streams, and the list of cases.
//
// A case is a program that is right natively. It ends the process at once with one of the statuses
// below where something differs; races are the simulator's to find, which then ends the process
// with 86 (and with 87 when nothing can go on any more).
#pragma once

#include "tests/order/kernels.h"

#include <cuda.h>

#include <span>

namespace order {

enum Status : int {
    kFine = 0,
    kCallFailed = 2,    ///< a CUDA call failed that must not
    kNotReused = 3,     ///< the freed address did not come back: the case shows nothing
    kCaptureBroken = 4, ///< a capture did not stay valid
    kWrongContent = 5,  ///< a byte is not what the program wrote
    kFenced = 6,        ///< a free recorded an event although all work is ordered
    kWaits = 7,         ///< something waited that need not, or did not where it must
    kNotReady = 8,      ///< "not ready" about work from before a free
    kNotFenced = 7,     ///< it did not although work may not be
    kWaited = 8,        ///< something waited, or was asked, that need not
    kNotServed = 9,     ///< the driver was asked for memory that the pool has, or the pool served
};

/// Prints one line and ends the process, as far as exit handlers go, with that status.
[[noreturn]] void stop(Status status, const char* what, int line);

inline void check(cudaError_t error, const char* call, int line) {
    if (error != cudaSuccess) stop(kCallFailed, call, line);
}
inline void check(CUresult result, const char* call, int line) {
    if (result != CUDA_SUCCESS) stop(kCallFailed, call, line);
}
#define ORDER_CHECK(call) ::order::check((call), #call, __LINE__)
#define ORDER_REQUIRE(condition, status)                                                           \
    do {                                                                                           \
        if (!(condition)) ::order::stop((status), #condition, __LINE__);                           \
    } while (false)

/// One block of this size fills a segment of the pool alone, so that nothing but the freed block
/// can serve the next request of the size.
constexpr std::size_t kBytes = std::size_t{2} << 20;
constexpr std::uint64_t kLateNs = 400'000; ///< far more than the calls of a case take
constexpr Byte kOld = 0xA5;
constexpr Byte kNew = 0x3C;

Byte* allocate(std::size_t bytes = kBytes);
void release(Byte* block);
cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking);
void drain(); ///< waits for the current device

/// Frees a block and allocates one of its size, which must be the same one.
Byte* reuse(Byte* block, std::size_t bytes = kBytes);

struct Case {
    const char* name;
    void (*run)();
};
std::span<const Case> rule_cases();
std::span<const Case> capture_cases();
std::span<const Case> capture_end_cases();
std::span<const Case> matrix_cases();
std::span<const Case> thread_cases();
std::span<const Case> context_cases();
std::span<const Case> hang_cases();
std::span<const Case> limit_cases();
std::span<const Case> ordered_cases();
std::span<const Case> host_cases();
std::span<const Case> host_quiet_cases();
std::span<const Case> async_cases();
std::span<const Case> mempool_cases();

} // namespace order
