#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace cachealloc {

/// The rules that make reuse safe, each of which a test switches off to prove that its own oracle
/// sees the damage. Only builds with CACHEALLOC_TEST_SWITCHES can switch one off.
enum class Rule : std::uint32_t {
    fence,           ///< a freed block waits for a fence taken at its free
    numbering,       ///< an event settles only stamps read before its number was taken
    barrier,         ///< an unfinished block is handed out only behind a wait on the device
    finished_level,  ///< at level `finished` a barrier settles nothing
    finished_only,   ///< blocks of frees that natively do not wait are reused only when finished
    capture_aside,   ///< beside an open capture the pool serves nothing and records nothing
    transition_sync, ///< the step down to `finished` waits for what was handed out before it
    ordered_exit,    ///< streams that end the total order wait for all work before them
    programmatic,    ///< a launch that may overlap its predecessor does not after a change
    stream_event,    ///< a block freed on a stream goes to others finished or behind a wait
    stream_identity, ///< streams are told apart by what never comes back, not by their handles
    host_visible,    ///< a free waits where the host may look at results that nothing else awaits
    device_order,    ///< under free:auto later work waits for what a free natively waits for
};

#ifdef CACHEALLOC_TEST_SWITCHES
/// The rules' names, in the order of Rule.
inline constexpr const char* kRuleNames[] = {
    "fence",           "numbering",       "barrier",      "finished_level", "finished_only",
    "capture_aside",   "transition_sync", "ordered_exit", "programmatic",   "stream_event",
    "stream_identity", "host_visible",    "device_order"};
static_assert(std::size(kRuleNames) == static_cast<std::size_t>(Rule::device_order) + 1);

/// One bit per Rule, set = switched off.
inline std::atomic<std::uint32_t> g_rules_off{0};

inline bool rule_on(Rule rule) {
    return (g_rules_off.load(std::memory_order_relaxed) &
            (1U << static_cast<std::uint32_t>(rule))) == 0;
}
#else
constexpr bool rule_on(Rule) {
    return true;
}
#endif

} // namespace cachealloc
