#include "tests/random/judge.h"

#include "tests/random/interpreter.h"
#include "tests/random/model.h"

#include <algorithm>
#include <cstdlib>

namespace random_programs {

namespace {

constexpr int kRaceStatus = 86;
constexpr int kDeadlockStatus = 87;
constexpr int kAlarmStatus = 128 + 14;
constexpr int kNotReady = 600;

std::optional<Wrong> by_status(int status) {
    switch (status) {
    case kFine:
        return std::nullopt;
    case kRaceStatus:
        return Wrong::race;
    case kDeadlockStatus:
    case kAlarmStatus:
        return Wrong::hang;
    case kWrongBytes:
        return Wrong::bytes;
    case kMemoryLeft:
        return Wrong::memory;
    case kCallFailed:
        return Wrong::code;
    default:
        return Wrong::crash;
    }
}

bool has(const Program& program, Verb verb) {
    return std::any_of(program.operations.begin(), program.operations.end(),
                       [verb](const Operation& o) { return o.verb == verb; });
}

/// The first operation whose code is not the native one.
std::string wrong_code(const Program& program, const Run& run) {
    Models models(program);
    bool failures = false;
    for (std::size_t i = 0; i < program.operations.size(); ++i) {
        const Operation& o = program.operations[i];
        const Verdict verdict = models.of(o.thread).apply(o);
        failures = failures || o.verb == Verb::fail;
        if (failures) return {}; // from here on a code may be the injected one
        const std::int32_t got = i < run.codes.size() ? run.codes[i] : kNotReached;
        const bool other_is_fine =
            !verdict.certain && (got == kNotReady || o.verb == Verb::publish);
        if (got != verdict.code && !other_is_fine) {
            return "operation " + std::to_string(i) + " (" + to_text(o) + ") returned " +
                   std::to_string(got) + " instead of " + std::to_string(verdict.code) + "\n";
        }
    }
    return {};
}

/// A number out of the shim's statistics; nothing if it printed none.
std::optional<long long> statistic(const std::string& messages, const std::string& key) {
    const std::size_t line = messages.find("cachealloc-stats:");
    if (line == std::string::npos) return std::nullopt;
    const std::string wanted = "\"" + key + "\": ";
    const std::size_t at = messages.find(wanted, line);
    if (at == std::string::npos) return std::nullopt;
    return std::strtoll(messages.c_str() + at + wanted.size(), nullptr, 10);
}

std::string wrong_statistics(const Program& program, const Run& run) {
    if (program.conf.find("stats:True") == std::string::npos) return {};
    const auto allocations = statistic(run.messages, "allocations");
    const auto frees = statistic(run.messages, "frees");
    const auto allocated = statistic(run.messages, "allocated_bytes");
    const auto requested = statistic(run.messages, "requested_bytes");
    if (!allocations || !frees || !allocated || !requested) return "no statistics\n";
    // What a context takes along when it ends was never freed; a program that meets an error stops.
    if (has(program, Verb::reset) || has(program, Verb::fail)) return {};
    if (*allocations == *frees && *allocated == 0 && *requested == 0) return {};
    return "statistics: " + std::to_string(*allocations) + " allocations, " +
           std::to_string(*frees) + " frees, " + std::to_string(*allocated) + " bytes allocated, " +
           std::to_string(*requested) + " requested\n";
}

} // namespace

const char* to_string(Wrong wrong) {
    switch (wrong) {
    case Wrong::race:
        return "race";
    case Wrong::hang:
        return "hang";
    case Wrong::bytes:
        return "bytes";
    case Wrong::code:
        return "code";
    case Wrong::memory:
        return "memory";
    case Wrong::crash:
        return "crash";
    case Wrong::illegal:
        return "illegal";
    }
    return "?";
}

bool legal(const Program& program) {
    Models models(program);
    for (const Operation& o : program.operations) {
        if (program.free_running && !keeps_to_itself(o)) return false;
        Model& model = models.of(o.thread);
        if (!model.check(o).legal) return false;
        model.apply(o);
    }
    return program.free_running || models.of(0).may_end();
}

std::optional<Finding> Judge::judge(const Program& program, const Run& run, bool shim) {
    const std::string status = "status " + std::to_string(run.status) + "\n" + run.messages;
    const auto wrong = by_status(run.status);
    if (wrong && *wrong != Wrong::code) return Finding{*wrong, status};
    if (const std::string what = wrong_code(program, run); !what.empty())
        return Finding{Wrong::code, what + run.messages};
    if (wrong) return Finding{*wrong, status};
    if (shim) {
        if (const std::string what = wrong_statistics(program, run); !what.empty())
            return Finding{Wrong::memory, what + run.messages};
    }
    return std::nullopt;
}

std::optional<Finding> Judge::under_shim(const Program& program) {
    if (!legal(program)) return Finding{Wrong::illegal, "not legal natively\n"};
    return judge(program, shim_.run(program), true);
}

std::optional<Finding> Judge::natively(const Program& program) {
    if (!legal(program)) return Finding{Wrong::illegal, "not legal natively\n"};
    return judge(program, native_.run(program), false);
}

} // namespace random_programs
