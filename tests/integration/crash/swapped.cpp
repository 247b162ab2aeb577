// Allocates through a function of one library, unloads it, and does the same through another one
// that the loader puts at the same place: addresses of the one stand for code of the other from
// then on. Ends with status 77 where the loader chose another place.
//   swapped FIRST.so SECOND.so
#include "tests/integration/crash/driver_user.h"

namespace {

const crash::Driver* g_driver = nullptr;

void take(std::size_t bytes) {
    g_driver->take(bytes);
}

using Call = void (*)(void (*take)(std::size_t), std::size_t bytes);

// The base at which `file` was loaded, after it allocated `count` times `bytes`.
const void* use(const char* file, const char* name, int count, std::size_t bytes) {
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    crash::require(library != nullptr, "the library opens");
    const auto call = reinterpret_cast<Call>(dlsym(library, name));
    crash::require(call != nullptr, name);
    for (int i = 0; i < count; ++i)
        call(take, bytes);
    Dl_info info{};
    crash::require(dladdr(reinterpret_cast<void*>(call), &info) != 0, "dladdr");
    const void* const base = info.dli_fbase;
    crash::require(dlclose(library) == 0, "dlclose");
    return base;
}

struct Step {
    int library; // of the command line
    const char* name;
    int count;
    std::size_t bytes;
};

constexpr Step kSteps[] = {{1, "alpha_allocates", 3, 3 << 20},
                           {2, "beta_allocates", 2, 5 << 20},
                           {1, "alpha_allocates", 1, 7 << 20}};

} // namespace

int main(int, char** argv) {
    const crash::Driver driver;
    g_driver = &driver;
    const void* bases[3] = {};
    volatile int steps =
        3; // one call in a loop that is not unrolled: the stacks are equal above it
    for (int i = 0; i < steps; ++i) {
        const Step& step = kSteps[i];
        bases[i] = use(argv[step.library], step.name, step.count, step.bytes);
    }
    if (bases[0] != bases[1] || bases[0] != bases[2]) {
        std::puts("SKIP swapped: the loader chose another base");
        return 77;
    }
    std::puts("swapped ok");
    return 7;
}
