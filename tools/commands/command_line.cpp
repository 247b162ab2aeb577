#include "tools/commands/command_line.h"

#include "tools/commands/check.h"
#include "tools/commands/diff.h"
#include "tools/commands/exit_codes.h"
#include "tools/commands/leaks.h"
#include "tools/commands/options.h"
#include "tools/commands/peak.h"
#include "tools/commands/replay.h"
#include "tools/commands/report.h"
#include "tools/commands/run.h"
#include "tools/commands/tune.h"
#include "tools/exports/export.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>

#include <unistd.h>

namespace cachealloc::tools {

namespace {

constexpr const char* kAbout =
    "Runs CUDA programs on a caching allocator that remembers who allocated what, and reads what "
    "it recorded.";
constexpr const char* kFooter =
    "Exit status: 0 fine, 1 findings where --fail-on or --limit asks, 2 usage, 3 a recording that "
    "cannot be "
    "read.\nExample: cachealloc run -o app.trace -- ./app; cachealloc report app.trace";

/// The commands with their options. Each command leaves what is to be done in `action`.
class Commands {
  public:
    Commands() : app_(kAbout, "cachealloc") {
        app_.require_subcommand(1);
        app_.footer(kFooter);
        app_.set_version_flag("--version", CACHEALLOC_VERSION);
        add_run();
        add_report();
        add_leaks();
        add_peak();
        add_diff();
        add_check();
        add_export();
        add_replay();
        add_tune();
        add_options();
    }

    int parse_and_act(int argc, char** argv) {
        // What follows the first "--" is the program's own, whatever it looks like.
        const bool runs = argc > 1 && std::string_view(argv[1]) == "run";
        char** const end = argv + argc;
        char** const mark = runs ? std::find(argv, end, std::string_view("--")) : end;
        if (mark != end) run_.command.assign(mark + 1, end);
        try {
            app_.parse(static_cast<int>(mark - argv), argv);
        } catch (const CLI::Success& wanted) { // --help, --version
            return app_.exit(wanted) == 0 ? kFine : kUsage;
        } catch (const CLI::ParseError& error) {
            fmt::print(stderr, "cachealloc: {} (try --help)\n", error.what());
            return kUsage;
        }
        return action_();
    }

  private:
    CLI::App* command(const char* name, const char* about, const char* example,
                      std::function<int()> action) {
        CLI::App* const sub = app_.add_subcommand(name, about);
        sub->footer(fmt::format("Example: {}", example));
        sub->callback([this, action = std::move(action)] { action_ = action; });
        return sub;
    }

    static void add_search(CLI::App* sub, bool& symbols, SymbolSearch& search) {
        sub->add_flag_callback(
            "--no-symbols", [&symbols] { symbols = false; },
            "Module and offset, without a look at files");
        sub->add_option("--sysroot", search.sysroot, "Where the recorded machine's files are");
        sub->add_option("--debug-path", search.debug_paths,
                        "A folder with separate debug files; may come several times")
            ->take_all()
            ->expected(1);
    }

    static void add_reading(CLI::App* sub, ReadOptions& read, bool file = true) {
        if (file) sub->add_option("file", read.file, "The recording; the newest if left out");
        sub->add_flag("--json", read.json, "For programs");
        sub->add_option("--device", read.device, "This device alone")
            ->check(CLI::Range(0, static_cast<int>(trace::kDevices) - 1));
        sub->add_option("--top", read.top, "Lines of a list")->check(CLI::Range(1, 1000000));
        add_search(sub, read.symbols, read.search);
    }

    /// An option that takes bytes, or "any" for 1.
    template <class Target>
    static CLI::Option* add_bytes(CLI::App* sub, const char* name, Target& target,
                                  const char* about) {
        return sub->add_option_function<std::string>(
            name,
            [name, &target](const std::string& text) {
                std::uint64_t bytes = 1;
                if (text != "any" && !parse_bytes(text, bytes))
                    throw CLI::ValidationError(name, text + " is no number such as 4096 or 64M");
                target = bytes;
            },
            about);
    }

    /// An option that takes one of a few words.
    template <class Value, std::size_t kCount>
    static void add_choice(CLI::App* sub, const char* name, Value& target,
                           const std::pair<const char*, Value> (&choices)[kCount],
                           const char* about) {
        std::string words;
        for (const auto& choice : choices)
            words.append(words.empty() ? "" : ", ").append(choice.first);
        const auto choose = [name, &target, &choices, words](const std::string& text) {
            for (const auto& choice : choices) {
                if (text != choice.first) continue;
                target = choice.second;
                return;
            }
            throw CLI::ValidationError(name, text + " is none of " + words);
        };
        sub->add_option_function<std::string>(name, choose, about)->option_text(words);
    }

    void add_run() {
        CLI::App* const sub =
            command("run", "Run a program with the allocator and the recorder preloaded",
                    "cachealloc run -o %e.%p.trace --conf free:async -- ./app --its-own-option\n"
                    "The program and its arguments follow --; the exit status is its own.",
                    [this] { return run(); });
        sub->prefix_command();
        sub->add_option("-o,--output", run_.output,
                        "Keep the recording there; %p, %h and %e are its process, host and name");
        sub->add_option("--conf", run_.conf, "CACHEALLOC_CONF; see `cachealloc options`");
        sub->add_flag("-f,--force", run_.overwrite, "Overwrite that file");
        sub->add_flag("--report", run_.report, "Wait for the program, then print the report");
        run_command_ = sub;
    }

    int run() {
        // Without "--" the program begins at the first word that is no option.
        const std::vector<std::string> rest = run_command_->remaining();
        run_.command.insert(run_.command.begin(), rest.begin(), rest.end());
        if (run_.command.empty()) {
            std::fputs("cachealloc: run: name a program: cachealloc run -- ./app\n", stderr);
            return kUsage;
        }
        if (run_.command[0].starts_with('-')) {
            fmt::print(stderr, "cachealloc: run: there is no option {} (try --help)\n",
                       run_.command[0]);
            return kUsage;
        }
        return run_main(run_);
    }

    void add_report() {
        CLI::App* const sub =
            command("report", "One screen about a recording", "cachealloc report app.trace",
                    [this] { return report_main(read_); });
        add_reading(sub, read_);
        sub->add_flag("--by-class", read_.by_class,
                      "What the allocator holds, small and large requests apart");
    }

    void add_leaks() {
        CLI::App* const sub =
            command("leaks", "What was never freed, by stack",
                    "cachealloc leaks app.trace --min-bytes 1M --fail-on any", [this] {
                        leaks_.read = read_;
                        return leaks_main(leaks_);
                    });
        add_reading(sub, read_);
        add_bytes(sub, "--min-bytes", leaks_.least_bytes, "Leave out stacks that hold less");
        add_bytes(sub, "--fail-on", leaks_.fail_from,
                  "Exit with 1 if so many allocations or more are left (or: any)");
        sub->add_flag("--host", leaks_.host, "Pinned host memory too");
    }

    void add_peak() {
        add_reading(command("peak", "Who held the memory when most was live, with whole stacks",
                            "cachealloc peak app.trace --device 0 --top 3",
                            [this] { return peak_main(read_); }),
                    read_);
    }

    void add_diff() {
        CLI::App* const sub = command("diff", "What grew from one recording to another, by stack",
                                      "cachealloc diff before.trace after.trace --by peak", [this] {
                                          diff_.read.file = read_.file;
                                          return diff_main(diff_);
                                      });
        sub->add_option("before", read_.file, "The older recording")->required();
        sub->add_option("after", diff_.other, "The newer recording")->required();
        add_reading(sub, diff_.read, false);
        static constexpr std::pair<const char*, DiffBy> kBy[] = {
            {"live", DiffBy::live}, {"peak", DiffBy::peak}, {"allocated", DiffBy::allocated}};
        add_choice(sub, "--by", diff_.by, kBy, "What is compared; live: at the end");
        add_bytes(sub, "--fail-on", diff_.fail_from,
                  "Exit with 1 if a stack grew by so many bytes or more (or: any)");
    }

    void add_check() {
        CLI::App* const sub =
            command("check", "Whether a recording is whole, and what it lacks",
                    "cachealloc check app.trace --json", [this] { return check_main(read_); });
        sub->add_option("file", read_.file, "The recording; the newest if left out");
        sub->add_flag("--json", read_.json, "For programs");
    }

    void add_export() {
        CLI::App* const sub =
            command("export", "Write a recording for other programs",
                    "cachealloc export app.trace --format memory_viz -o app.pickle", [this] {
                        export_.file = chosen_file(export_.file);
                        export_.progress = ::isatty(STDERR_FILENO) == 1;
                        return export_main(export_);
                    });
        sub->add_option("file", export_.file, "The recording; the newest if left out");
        const auto parsed = [](const char* name, auto parse, auto& target, const char* allowed) {
            return [name, parse, &target, allowed](const std::string& text) {
                if (!parse(text, target))
                    throw CLI::ValidationError(name, text + " is none of " + allowed);
            };
        };
        static constexpr const char* kFormats =
            "memory_viz (pytorch.org/memory_viz), collapsed, speedscope, perfetto, csv";
        static constexpr const char* kCosts = "end, peak, allocated";
        sub->add_option_function<std::string>(
               "--format", parsed("--format", parse_export_format, export_.format, kFormats),
               kFormats)
            ->required();
        sub->add_option_function<std::string>(
            "--cost", parsed("--cost", parse_export_cost, export_.cost, kCosts),
            std::string("collapsed, speedscope: what counts: ") + kCosts);
        sub->add_option("-o,--output", export_.output, "The file to write; - for standard output")
            ->required();
        sub->add_flag("-f,--force", export_.overwrite, "Overwrite it");
        sub->add_option("--device", export_.device, "This device alone")
            ->check(CLI::Range(0, static_cast<int>(trace::kDevices) - 1));
        sub->add_option("--from", export_.from_seconds, "Seconds since the start to begin at");
        sub->add_option("--to", export_.to_seconds, "Seconds since the start to end at");
        add_search(sub, export_.symbols, export_.search);
    }

    void add_replay() {
        CLI::App* const sub =
            command("replay", "Run recorded allocations through the pool, without a GPU",
                    "cachealloc replay app.trace --conf expandable_segments:True --limit 40G",
                    [this] { return replay_main(replay_); });
        sub->add_option(
            "files", replay_.files,
            "Recordings, or CSV files of events (op,id,bytes,stream,us,site) or intervals "
            "(id,lower,upper,size); several make a table; the newest recording if "
            "left out");
        sub->add_option("--conf", replay_.conf,
                        "CACHEALLOC_CONF; left out: as recorded, or the defaults");
        static constexpr std::pair<const char*, ReplayPolicy> kPolicies[] = {
            {"ours", ReplayPolicy::ours},
            {"pytorch", ReplayPolicy::pytorch},
            {"pytorch-expandable", ReplayPolicy::pytorch_expandable},
            {"greedy", ReplayPolicy::greedy}};
        add_choice(
            sub, "--policy", replay_.policy, kPolicies,
            "Who places: ours; PyTorch's rules; or, knowing all, the best offline placement");
        add_bytes(
            sub, "--limit", replay_.limit,
            "Memory of the device, such as 40G: whether the run fits (1 if not); left out: as "
            "the recording says");
        add_pass(sub, replay_.steps, replay_.pool, replay_.json);
    }

    void add_tune() {
        CLI::App* const sub = command(
            "tune", "Find the options that reserve least for recorded allocations",
            "cachealloc tune app.trace --max-driver-calls 1", [this] { return tune_main(tune_); });
        sub->add_option("file", tune_.file,
                        "A recording, or a CSV file of events or intervals; the newest recording "
                        "if left out");
        sub->add_option("--max-driver-calls", tune_.most_calls,
                        "Driver calls that a step may make once the program has settled (2)")
            ->check([](const std::string& text) {
                return CLI::Range(0.0, 1e9)(text).empty() && !std::isnan(std::stod(text))
                           ? std::string()
                           : text + " is no number from 0 to 1e9";
            });
        add_pass(sub, tune_.steps, tune_.pool, tune_.json);
    }

    static void add_pass(CLI::App* sub, unsigned& steps, int& pool, bool& json) {
        sub->add_option("--steps", steps, "Steps that the run had, for counts a step (30)")
            ->check(CLI::Range(1, 1000000000));
        sub->add_option("--pool", pool, "The pool with that number; else the one that held most")
            ->check(CLI::Range(0, 255));
        sub->add_flag("--json", json, "For programs");
    }

    void add_options() {
        CLI::App* const sub =
            command("options", "What CACHEALLOC_CONF may say, or what a text for it comes to",
                    "cachealloc options --conf free:async,ring_mb:256",
                    [this] { return options_main(conf_, read_.json); });
        sub->add_option("--conf", conf_, "A text to try");
        sub->add_flag("--json", read_.json, "For programs");
    }

    CLI::App app_;
    CLI::App* run_command_ = nullptr;
    std::function<int()> action_;
    RunOptions run_;
    ReadOptions read_;
    LeakOptions leaks_;
    DiffOptions diff_;
    ReplayOptions replay_;
    TuneOptions tune_;
    ExportOptions export_;
    std::string conf_;
};

} // namespace

bool parse_bytes(const std::string& text, std::uint64_t& bytes) {
    double number = 0;
    std::size_t used = 0;
    try {
        number = std::stod(text, &used);
    } catch (const std::exception&) {
        return false;
    }
    std::string unit = text.substr(used);
    if (unit.ends_with("B")) unit.pop_back();
    if (unit.ends_with("i")) unit.pop_back();
    static constexpr std::string_view kUnits = "KMGT";
    if (unit.size() > 1) return false;
    if (unit.size() == 1) {
        const std::size_t power = kUnits.find(unit[0] == 'k' ? 'K' : unit[0]);
        if (power == std::string_view::npos) return false;
        for (std::size_t i = 0; i <= power; ++i)
            number *= 1024;
    }
    if (!(number >= 0 && number < 0x1p62)) return false;
    bytes = static_cast<std::uint64_t>(number);
    return true;
}

int command_line(int argc, char** argv) {
    int code = kUsage;
    try {
        code = Commands().parse_and_act(argc, argv);
    } catch (const TraceError& error) {
        fmt::print(stderr, "cachealloc: {}\n", error.what());
        return kUnreadable;
    } catch (const std::exception& error) {
        fmt::print(stderr, "cachealloc: {}\n", error.what());
        return kUsage;
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        std::fputs("cachealloc: the output could not be written\n", stderr);
        return kUsage;
    }
    return code;
}

} // namespace cachealloc::tools
