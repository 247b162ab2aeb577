// Lets tests read how often each intercepted entry point was called. Part of the testing library
// alone.
#ifdef CACHEALLOC_TEST_SWITCHES

#include "shim/entry_counts.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace cachealloc::shim {

namespace {
constinit std::array<std::atomic<std::uint64_t>, kEntryCount> g_counts{};
}

void count_entry(Entry entry) {
    g_counts[static_cast<std::size_t>(entry)].fetch_add(1, std::memory_order_relaxed);
}

} // namespace cachealloc::shim

// Calls of the entry point with exactly this name so far; all ones if it is not intercepted.
extern "C" __attribute__((visibility("default"))) std::uint64_t
cachealloc_test_submits(const char* name) {
    using namespace cachealloc::shim;
    const Entry entry = find_entry(name);
    if (entry == Entry::none || entry_hook(entry) == Hook::none) return ~std::uint64_t{0};
    return g_counts[static_cast<std::size_t>(entry)].load(std::memory_order_relaxed);
}

// The name of intercepted entry point number `index`; null at the end.
extern "C" __attribute__((visibility("default"))) const char*
cachealloc_test_submit_name(unsigned index) {
    using namespace cachealloc::shim;
    return index < kHookCount ? hook_name(static_cast<Hook>(index)) : nullptr;
}

#endif
