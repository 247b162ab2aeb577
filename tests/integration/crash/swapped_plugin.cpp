// Two libraries from one source, the same byte for byte but for the name: SWAPPED_NAME.
#include <cstddef>

namespace {

__attribute__((noinline)) void inner(void (*take)(std::size_t), std::size_t bytes) {
    take(bytes);
    asm volatile("" ::: "memory");
}

} // namespace

extern "C" __attribute__((visibility("default"))) void SWAPPED_NAME(void (*take)(std::size_t),
                                                                    std::size_t bytes) {
    inner(take, bytes);
    asm volatile("" ::: "memory");
}
