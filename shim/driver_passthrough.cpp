// What an intercepted entry point does where no subject needs it: the driver's own. A definition
// elsewhere takes precedence over the weak one here.
#include "shim/driver.h"

namespace cachealloc::shim {

#define PASS(name, kind, stream)
#define SUBMIT(name, kind, stream)
#define CALL(name, kind, stream, params)
#define HOOK(name, kind, stream, params, args)                                                     \
    __attribute__((weak)) CUresult hook_##name params {                                            \
        return real.name args;                                                                     \
    }
#include "shim/entry_points.def"
#undef PASS
#undef SUBMIT
#undef CALL
#undef HOOK

} // namespace cachealloc::shim
