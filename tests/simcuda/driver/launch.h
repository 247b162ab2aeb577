// Kernels and host functions as device work.
#pragma once

#include "guard.h"

namespace simcuda {

struct Shape {
    unsigned grid[3];
    unsigned block[3];
};

// Runs the kernel's twin, which says what the work is, and submits that.
// `programmatic`: it need not wait for the kernel in front of it.
CUresult launch(const StreamPtr& s, CUfunction handle, const Shape& shape, void** args,
                bool programmatic = false);
CUresult call_host(const StreamPtr& s, CUhostFn fn, void* data);

} // namespace simcuda
