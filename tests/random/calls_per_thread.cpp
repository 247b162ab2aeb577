// Before cuda.h: it then gives the names their per-thread meaning.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "tests/random/calls.h"

namespace random_programs {

const Calls kPerThreadCalls =
#include "tests/random/calls.inc"
    ;

} // namespace random_programs
