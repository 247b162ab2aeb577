// cuda.h with every ABI version declared under its own name and none renamed by macro: what a
// driver that exports them all needs. Every source here includes this instead of cuda.h.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
