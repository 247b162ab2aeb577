// A scope in which the calling thread's CUDA calls leave open captures alone: queries, event
// creation and waits that would be refused beside a global capture, and end it, succeed (measured
// on an H200).
#pragma once

#include "shim/driver.h"

namespace cachealloc::shim {

class RelaxedCapture {
  public:
    RelaxedCapture() { real.cuThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedCapture() { real.cuThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

} // namespace cachealloc::shim
