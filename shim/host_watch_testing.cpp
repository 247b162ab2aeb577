// Lets tests read how often free:auto waited. Part of the testing library alone.
#ifdef CACHEALLOC_TEST_SWITCHES

#include "shim/process.h"

#include <cstring>

// "native_waits": frees that waited as natively; "query_waits": questions that waited for a free.
// All ones for other names.
extern "C" __attribute__((visibility("default"))) std::uint64_t
cachealloc_test_host_waits(const char* name) {
    using namespace cachealloc::shim;
    Process* const state = process();
    if (state == nullptr) return 0;
    if (std::strcmp(name, "query_waits") == 0) return state->host_watch.query_waits();
    if (std::strcmp(name, "native_waits") != 0) return ~std::uint64_t{0};
    std::uint64_t sum = 0;
    state->contexts.for_each_ever(
        [&](ContextPool& context) { sum += context.pool.statistics().native_waits; });
    return sum;
}

#endif
