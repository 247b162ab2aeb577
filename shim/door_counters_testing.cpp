// Lets tests read what went through the doors. Part of the testing library alone.
#ifdef CACHEALLOC_TEST_SWITCHES

#include "shim/resolve.h"

#include <cstring>

extern "C" __attribute__((visibility("default"))) std::uint64_t
cachealloc_test_door_counter(const char* name) {
    using cachealloc::shim::door_counters;
    if (std::strcmp(name, "dlsym_substituted") == 0) return door_counters.dlsym_substituted;
    if (std::strcmp(name, "lookup_substituted") == 0) return door_counters.lookup_substituted;
    if (std::strcmp(name, "foreign_lookups") == 0) return door_counters.foreign_lookups;
    if (std::strcmp(name, "unknown_names") == 0) return door_counters.unknown_names;
    return ~std::uint64_t{0};
}

#endif
