// Test builds alone: how often the program called each intercepted entry point, so that a test can
// compare with what the driver's own tracing saw. The shipped library counts nothing.
#pragma once

#include "shim/entry_points.h"

namespace cachealloc::shim {

#ifdef CACHEALLOC_TEST_SWITCHES
// Counts one call. Thread-safe.
void count_entry(Entry entry);
#else
constexpr void count_entry(Entry) {}
#endif

} // namespace cachealloc::shim
