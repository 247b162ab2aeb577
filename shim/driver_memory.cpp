// What else takes device memory: natively a failed call would have found what the pools cache, so
// it gets it.
#include "shim/driver.h"
#include "shim/room.h"

namespace cachealloc::shim {

#define WITH_ROOM(name, params, args)                                                              \
    CUresult hook_##name params {                                                                  \
        return with_room([&] { return real.name args; });                                          \
    }

WITH_ROOM(cuModuleLoadData, (CUmodule * module, const void* image), (module, image))
WITH_ROOM(cuModuleLoadDataEx,
          (CUmodule * module, const void* image, unsigned int count, CUjit_option* options,
           void** values),
          (module, image, count, options, values))
WITH_ROOM(cuModuleLoadFatBinary, (CUmodule * module, const void* binary), (module, binary))
WITH_ROOM(cuLibraryLoadData,
          (CUlibrary * library, const void* code, CUjit_option* jit_options, void** jit_values,
           unsigned int jit_count, CUlibraryOption* options, void** values, unsigned int count),
          (library, code, jit_options, jit_values, jit_count, options, values, count))

#undef WITH_ROOM

} // namespace cachealloc::shim
