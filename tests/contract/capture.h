// How the capture cases run something beside an open capture.
#pragma once

#include "tests/contract/contract.h"

#include <functional>

namespace contract {

inline constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
inline constexpr auto kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
inline constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
inline constexpr auto kRefused = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

enum class Who { capturing_thread, another_thread };

/// "global capture, another thread".
std::string name_of(CUstreamCaptureMode mode, Who who);

struct Outcome {
    CUresult result; // of the action
    bool valid;      // whether the capture could be ended as if nothing had happened
};

/// What captures write (4,096 bytes): allocated once, so that it never takes an address that a case
/// has freed.
CUdeviceptr capture_target();

/// Runs `action` beside a capture in `mode`, in the capturing thread or in another one.
Outcome beside_capture(const Device& device, CUstreamCaptureMode mode, Who who,
                       const std::function<CUresult()>& action);

/// On the simulated CUDA it can be counted whether allocation still goes without the driver, once
/// all captures have ended; elsewhere nothing is checked.
void check_pool_serves();

} // namespace contract
