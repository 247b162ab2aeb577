#include "shim/process.h"

#include "core/choice.h"
#include "shim/lifecycle.h"
#include "shim/log.h"

#include <cstdlib>
#include <mutex>
#include <new>

#include <unistd.h>

namespace cachealloc::shim {

namespace {

enum class Phase : int { untouched, starting, running, off };

std::atomic<Phase> g_phase{Phase::untouched};
std::atomic<Process*> g_process{nullptr};
std::once_flag g_once;
alignas(Process) std::byte g_storage[sizeof(Process)];
thread_local bool t_starting = false;

void report_options(const ParseReport& report, const Options& options) {
    for (std::size_t i = 0; i < report.size(); ++i)
        log(LogLevel::error, report[i]);
    if (report.dropped() != 0) {
        logf(LogLevel::error, "CACHEALLOC_CONF: %zu more like these", report.dropped());
    }
    if (options.strict && report.mistakes() != 0) {
        log(LogLevel::error, "strict:True and CACHEALLOC_CONF has mistakes: ending the process");
        _exit(2);
    }
}

#ifdef CACHEALLOC_TEST_SWITCHES
// CACHEALLOC_TEST_DISABLE=fence,barrier,..: the rules by their names (kRuleNames).
void switch_rules_off() {
    const char* const text = getenv("CACHEALLOC_TEST_DISABLE");
    if (text == nullptr) return;
    const std::string_view off(text);
    std::uint32_t bit = 1;
    for (const char* name : kRuleNames) {
        if (off.find(name) != std::string_view::npos) g_rules_off.fetch_or(bit);
        bit <<= 1;
    }
}

// CACHEALLOC_TEST_YOUNGER_FENCES=N: another choice between a barrier and a wait of the host.
void change_choice() {
    const char* const text = getenv("CACHEALLOC_TEST_YOUNGER_FENCES");
    if (text != nullptr) g_younger_fences = std::strtoull(text, nullptr, 10);
}
#endif

void start() {
    t_starting = true;
    const char* const text = getenv("CACHEALLOC_CONF");
    ParseReport report;
    const Options options = parse_options(text != nullptr ? text : "", report);
    set_log_detail(options.log);
    report_options(report, options);
#ifdef CACHEALLOC_TEST_SWITCHES
    switch_rules_off();
    change_choice();
#endif
    Process* const made = new (g_storage) Process(options);
    made->recording.start();
    if (options.per_process_memory_fraction != Fraction{Fraction::kOne}) made->memory.open();
    watch_lifecycle(*made);
    if (options.order != OrderStart::automatic) made->total_order.leave();
    g_process.store(made, std::memory_order_release);
    t_starting = false;
}

} // namespace

Process* process() {
    Process* const made = g_process.load(std::memory_order_acquire);
    if (made != nullptr) return made;
    if (t_starting || g_phase.load(std::memory_order_acquire) == Phase::off) return nullptr;
    std::call_once(g_once, start);
    return g_process.load(std::memory_order_acquire);
}

void switch_off_in_child() {
    g_phase.store(Phase::off, std::memory_order_release);
    g_process.store(nullptr, std::memory_order_release);
}

} // namespace cachealloc::shim
