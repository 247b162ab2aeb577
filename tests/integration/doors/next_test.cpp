// RTLD_NEXT and RTLD_DEFAULT keep their meaning for everyone. Under the control preload, whose
// dlsym is an ordinary function, this program must fail.
#include "tests/integration/doors/process.h"

#include <cstdio>
#include <unistd.h>

extern "C" void* next_library_found();
extern "C" void* next_library_found_versioned();
extern "C" void* next_library_found_driver();

namespace {
int failures = 0;
void check(bool ok, const char* what) {
    if (!ok) {
        std::printf("FAILED: %s\n", what);
        ++failures;
    }
}
} // namespace

int main() {
    check(doors::file_of(next_library_found()) == "libc.so.6", "RTLD_NEXT is the C library's");
    check(doors::file_of(next_library_found_versioned()) == "libc.so.6", "also through dlvsym");
    // A profiler behind the preload that forwards to the driver.
    check(doors::file_of(next_library_found_driver()) == "libcuda.so.1",
          "RTLD_NEXT is the driver's own");
    check(doors::file_of(dlsym(RTLD_DEFAULT, "getppid")) == "libnext_library.so",
          "RTLD_DEFAULT is the first in scope");
    if (failures == 0) check(getppid() > 0, "the wrapper forwards");
    return failures == 0 ? 0 : 1;
}
