#include "tests/random/calls.h"

namespace random_programs {

const Calls kOrdinaryCalls =
#include "tests/random/calls.inc"
    ;

} // namespace random_programs
