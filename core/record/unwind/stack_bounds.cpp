#include "core/record/unwind/stack_bounds.h"

#include <pthread.h>

namespace cachealloc {

namespace {

struct Known {
    StackBounds bounds;
    bool asked = false;
};
[[gnu::tls_model("initial-exec")]] thread_local Known t_known;

void ask() {
    t_known.asked = true; // whatever comes of it, and for calls from inside malloc
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    void* low = nullptr;
    std::size_t bytes = 0;
    if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
        const auto start = reinterpret_cast<std::uintptr_t>(low);
        t_known.bounds = {start, start + bytes};
    }
    pthread_attr_destroy(&attributes);
}

} // namespace

StackBounds stack_bounds() {
    if (!t_known.asked) [[unlikely]]
        ask();
    return t_known.bounds;
}

} // namespace cachealloc
