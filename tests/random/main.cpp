// random_programs: makes random CUDA programs, runs them on the simulated CUDA under the shim and
// says which of them went wrong. `--help` lists the commands.
#include "core/order/rules.h"
#include "tests/random/generator.h"
#include "tests/random/interpreter.h"
#include "tests/random/judge.h"
#include "tests/random/shrinker.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace random_programs;

namespace {

constexpr const char* kHelp = R"(random_programs --shim LIBRARIES COMMAND...
  --shim LIBRARIES      LD_PRELOAD of the runs: the testing shim, behind a sanitizer's runtime
  --jobs N              programs at a time; default: as many as there are cores
  --limit SECONDS       a run that takes longer hangs; default 20
commands:
  ci N                  the programs of seeds 1 to N
  seed S [PROFILE]      one program, with all that it says
  show S [PROFILE]      its text
  native N              the same without the shim
  soak N [SEED]         N programs of seeds from SEED on, drawn and printed unless given
  table N               each rule switched off: the first program that finds it
  file PATH...          programs from files
)";

struct Settings {
    std::string self;
    std::string shim;
    unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
    unsigned limit_s = 20;
};

const Profile* profile_by_name(const std::string& name) {
    for (const Profile& profile : profiles()) {
        if (profile.name == name) return &profile;
    }
    std::fprintf(stderr, "random_programs: no profile %s\n", name.c_str());
    std::exit(2);
}

std::string repeat_command(const Program& program, const Profile& profile) {
    return "random_programs --shim LIBRARIES seed " + std::to_string(program.seed) + " " +
           std::string(profile.name);
}

void report(Judge& judge, const Program& program, const Profile& profile, const Finding& finding,
            bool native) {
    std::printf("\n%s in program %llu (%s)%s; again: %s\n%s", to_string(finding.wrong),
                static_cast<unsigned long long>(program.seed), std::string(profile.name).c_str(),
                native ? " without the shim" : "", repeat_command(program, profile).c_str(),
                finding.what.c_str());
    const auto fails = [&](const Program& candidate) {
        const auto found = native ? judge.natively(candidate) : judge.under_shim(candidate);
        return found && found->wrong == finding.wrong;
    };
    // Hangs cost a second each.
    const Program small = shrink(program, fails, finding.wrong == Wrong::hang ? 60 : 2000);
    std::printf(
        "-- cut down to %zu operations; save it as tests/random/programs/<name>.txt:\n%s--\n",
        small.operations.size(), to_text(small).c_str());
    const auto again = native ? judge.natively(small) : judge.under_shim(small);
    if (again) std::printf("%s", again->what.c_str());
    std::fflush(stdout);
}

/// Seeds [first, first + count) of all profiles in turn. Returns how many programs went wrong.
std::uint64_t run_many(const Settings& settings, std::uint64_t first, std::uint64_t count,
                       bool native) {
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::uint64_t> bad{0};
    std::mutex printing;
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < settings.jobs; ++i) {
        workers.emplace_back([&] {
            Judge judge(settings.self, settings.shim, settings.limit_s);
            for (std::uint64_t k = next++; k < count && bad < 5; k = next++) {
                const std::uint64_t seed = first + k;
                // Half of them of all sorts.
                const Profile& profile =
                    seed % 2 == 0 ? everything() : profiles()[seed / 2 % profiles().size()];
                const Program program = generate(seed, profile);
                const auto finding = native ? judge.natively(program) : judge.under_shim(program);
                if (!finding) continue;
                ++bad;
                const std::lock_guard hold(printing);
                report(judge, program, profile, *finding, native);
            }
        });
    }
    for (std::thread& worker : workers)
        worker.join();
    std::printf("%llu programs from seed %llu on%s: %llu went wrong\n",
                static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
                native ? " without the shim" : "", static_cast<unsigned long long>(bad.load()));
    std::fflush(stdout);
    return bad;
}

/// Each rule off: the first program that notices.
int table(const Settings& settings, std::uint64_t most) {
    std::printf("%-18s %-18s %10s  %s\n", "rule switched off", "programs", "found by", "how");
    bool all = true;
    Judge judge(settings.self, settings.shim, settings.limit_s);
    for (const char* rule : cachealloc::kRuleNames) {
        const Profile* const aimed = profile_for_rule(rule);
        const Profile& profile = aimed != nullptr ? *aimed : everything();
        bool found = false;
        for (std::uint64_t seed = 1; seed <= most && !found; ++seed) {
            Program program = generate(seed, profile);
            program.off = rule;
            const auto finding = judge.under_shim(program);
            if (!finding) continue;
            found = true;
            std::printf("%-18s %-18s %10llu  %s\n", rule, std::string(profile.name).c_str(),
                        static_cast<unsigned long long>(seed), to_string(finding->wrong));
            std::fflush(stdout);
        }
        if (!found)
            std::printf("%-18s %-18s          -\n", rule, std::string(profile.name).c_str());
        all = all && found;
    }
    return all ? 0 : 1;
}

int one(const Settings& settings, std::uint64_t seed, const Profile& profile) {
    const Program program = generate(seed, profile);
    std::printf("%s", to_text(program).c_str());
    std::fflush(stdout);
    Judge judge(settings.self, settings.shim, settings.limit_s);
    const auto native = judge.natively(program);
    if (native) report(judge, program, profile, *native, true);
    const auto finding = judge.under_shim(program);
    if (finding) report(judge, program, profile, *finding, false);
    if (!native && !finding) std::printf("fine\n");
    return native || finding ? 1 : 0;
}

int files(const Settings& settings, const std::vector<std::string>& paths) {
    int bad = 0;
    Judge judge(settings.self, settings.shim, settings.limit_s);
    for (const std::string& path : paths) {
        std::ifstream file(path);
        std::stringstream text;
        text << file.rdbuf();
        std::string error = file ? "" : "cannot be opened";
        const auto program = parse_program(text.str(), &error);
        if (!file || !program) {
            std::printf("%s: %s\n", path.c_str(), error.c_str());
            ++bad;
            continue;
        }
        for (const bool native : {true, false}) {
            const auto finding = native ? judge.natively(*program) : judge.under_shim(*program);
            std::printf("%s%s: %s\n%s", path.c_str(), native ? " without the shim" : "",
                        finding ? to_string(finding->wrong) : "fine",
                        finding ? finding->what.c_str() : "");
            bad += finding ? 1 : 0;
        }
    }
    return bad == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 2 && words[0] == "--serve")
        return serve(static_cast<unsigned>(std::stoul(words[1])), interpret);
    Settings settings;
    settings.self = argv[0];
    const auto take = [&](const char* name) {
        const auto at = std::find(words.begin(), words.end(), name);
        if (at == words.end() || at + 1 == words.end()) return std::string();
        std::string value = *(at + 1);
        words.erase(at, at + 2);
        return value;
    };
    settings.shim = take("--shim");
    if (const std::string jobs = take("--jobs"); !jobs.empty())
        settings.jobs = static_cast<unsigned>(std::max(1UL, std::stoul(jobs)));
    if (const std::string limit = take("--limit"); !limit.empty())
        settings.limit_s = static_cast<unsigned>(std::stoul(limit));
    const std::string command = words.empty() ? "" : words[0];
    const auto number = [&](std::size_t i) -> std::uint64_t {
        return std::strtoull(words[i].c_str(), nullptr, 10);
    };
    const auto drawn = [&](std::size_t i) -> std::uint64_t {
        if (words.size() > i) return number(i);
        return (std::uint64_t{std::random_device{}()} << 20) + 1'000'000;
    };
    const auto profile = [&](std::size_t i) -> const Profile& {
        return words.size() > i ? *profile_by_name(words[i]) : everything();
    };
    if (words.size() >= 2) {
        // The same seeds each time: what a soak finds is kept as a program instead.
        if (command == "ci") return run_many(settings, 1, number(1), false) == 0 ? 0 : 1;
        if (command == "soak") return run_many(settings, drawn(2), number(1), false) == 0 ? 0 : 1;
        if (command == "native") return run_many(settings, 1, number(1), true) == 0 ? 0 : 1;
        if (command == "table") return table(settings, number(1));
        if (command == "seed") return one(settings, number(1), profile(2));
        if (command == "show") {
            std::printf("%s", to_text(generate(number(1), profile(2))).c_str());
            return 0;
        }
        if (command == "file") return files(settings, {words.begin() + 1, words.end()});
    }
    std::fputs(kHelp, stderr);
    return 2;
}
