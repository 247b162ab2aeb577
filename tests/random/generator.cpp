#include "tests/random/generator.h"

#include "core/options.h"
#include "tests/random/model.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <random>
#include <vector>

namespace random_programs {

namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kSizes[] = {64,         512,        4 * kKiB,    16 * kKiB,   64 * kKiB,
                                   256 * kKiB, 512 * kKiB, 1024 * kKiB, 1536 * kKiB, 2048 * kKiB};
constexpr std::int64_t kDurations[] = {0, 2'000, 50'000, 400'000, 400'000};

/// What the shim does not know yet, or no more, is left out.
bool understood(const std::string& conf) {
    cachealloc::ParseReport report;
    (void)cachealloc::parse_options(conf, report);
    return report.mistakes() == 0;
}

class Generator {
  public:
    Generator(std::uint64_t seed, const Profile& profile)
        : random_(seed * 2654435761U + 12345), profile_(profile) {
        program_.seed = seed;
        threads_ = 1 + below(static_cast<std::uint64_t>(profile.threads));
        streams_ = below(static_cast<std::uint64_t>(profile.streams) + 1);
        devices_ = 1 + below(static_cast<std::uint64_t>(profile.devices));
        choose_surroundings();
        program_.free_running = profile.free_running;
        models_ = std::make_unique<Models>(program_);
        for (std::int64_t& size : sizes_)
            size = kSizes[below(std::size(kSizes))];
        read_weights();
    }

    Program make() {
        const std::size_t length = 10 + below(51);
        for (int tries = 0; program_.operations.size() < length && tries < 400; ++tries)
            try_one();
        finish();
        return std::move(program_);
    }

  private:
    Model& model() { return models_->of(thread_); }
    std::uint64_t below(std::uint64_t n) { return n <= 1 ? 0 : random_() % n; }
    bool chance(std::uint64_t one_in) { return below(one_in) == 0; }
    template <class Range>
    const auto& pick(const Range& range) {
        return range[below(std::size(range))];
    }

    void choose_surroundings();
    void read_weights();
    void try_one();
    bool wish(Operation o, int repairs);
    bool repair(const Operation& wanted, Stamp missing);
    bool add(const Operation& o);
    std::optional<Operation> draw();
    bool draw_argument(char kind, Verb verb, std::size_t position, std::int64_t& value);
    std::int64_t draw_stream(Verb verb);
    void finish();

    std::mt19937_64 random_;
    const Profile& profile_;
    Program program_;
    std::unique_ptr<Models> models_;
    std::uint64_t threads_ = 1;
    std::uint64_t streams_ = 1;
    std::uint64_t devices_ = 1;
    int thread_ = 0;
    std::int64_t sizes_[3] = {};
    std::vector<std::pair<Verb, std::uint64_t>> weights_;
    std::uint64_t total_ = 0;
};

void Generator::choose_surroundings() {
    constexpr const char* kFree[] = {"free:async", "free:async", "free:async", "free:auto",
                                     "free:sync"};
    constexpr const char* kOrder[] = {"",           "", "", "", ",order:fenced", ",order:finished",
                                      ",order:wait"};
    constexpr const char* kMemory[] = {",slack_mb:0,slack_percent:0",
                                       ",slack_mb:0,slack_percent:0",
                                       "",
                                       ",slack_mb:0,slack_percent:0,cache_mb:0",
                                       ",slack_mb:1,cache_mb:1",
                                       ",slack_mb:0,slack_percent:0,max_split_size_mb:20",
                                       ",slack_mb:0,roundup_power2_divisions:4"};
    constexpr const char* kAsync[] = {"", "", ",async:driver"};
    constexpr const char* kGrowing[] = {"", "", ",expandable_segments:True"};
    if (profile_.confs.empty()) {
        do {
            program_.conf = std::string(pick(kFree)) + pick(kOrder) + pick(kMemory) + pick(kAsync) +
                            pick(kGrowing);
        } while (!understood(program_.conf));
    } else {
        program_.conf = profile_.confs;
    }
    program_.conf += ",stats:True";
    constexpr const char* kProgress[] = {"lazy", "lazy", "lazy", "random", "eager"};
    program_.sim = "seed:" + std::to_string(1 + below(1000)) +
                   ",progress:" + (profile_.rule.empty() ? pick(kProgress) : "lazy") +
                   ",deadlock_s:1";
    if (devices_ > 1) program_.sim += ",devices:2";
    if (profile_.rule.empty() && chance(20)) program_.sim += ",driver:12040";
    if (chance(3)) program_.sim += ",call_ns:2000";
}

void Generator::read_weights() {
    std::string_view rest = profile_.weights;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(' '), rest.size());
        const std::string_view item = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        const std::size_t colon = item.find(':');
        std::uint64_t weight = 0;
        std::from_chars(item.data() + colon + 1, item.data() + item.size(), weight);
        for (std::size_t v = 0; v <= static_cast<std::size_t>(Verb::advance); ++v) {
            const Verb verb = static_cast<Verb>(v);
            if (name_of(verb) == item.substr(0, colon)) weights_.emplace_back(verb, weight);
        }
        total_ += weight;
    }
}

std::int64_t Generator::draw_stream(Verb verb) {
    if (verb == Verb::destroy || verb == Verb::stream)
        return streams_ == 0 ? 0 : 1 + static_cast<std::int64_t>(below(streams_));
    // Mostly created streams, where there are any.
    const std::uint64_t kind = below(12);
    if (kind < 2 || streams_ == 0) return kLegacy;
    if (kind == 2 && profile_.per_thread) return chance(2) ? kPerThread : kPerThreadEntry;
    return 1 + static_cast<std::int64_t>(below(streams_));
}

bool Generator::draw_argument(char kind, Verb verb, std::size_t position, std::int64_t& value) {
    // A name that fits: a new one for what makes an object, a living one for the others.
    const auto choose = [&](int count, auto fits) {
        std::vector<std::int64_t> names;
        for (std::int64_t i = 0; i < count; ++i) {
            if (fits(i)) names.push_back(i);
        }
        if (names.empty()) return false;
        value = pick(names);
        return true;
    };
    switch (kind) {
    case 'b': {
        const bool fresh = verb == Verb::malloc || verb == Verb::malloc_async;
        return choose(kBlocks, [&](std::int64_t b) { return model().block_lives(b) != fresh; });
    }
    case 's':
        value = draw_stream(verb);
        return verb == Verb::stream || model().stream_exists(value);
    case 'e':
        return choose(kEvents, [&](std::int64_t e) {
            return model().event_exists(e) != (verb == Verb::event);
        });
    case 'g':
        return choose(kGraphs, [&](std::int64_t g) {
            return model().graph_exists(g) != (verb == Verb::end_capture);
        });
    case 'h':
        if (verb == Verb::pinned || verb == Verb::unpinned || chance(2)) {
            return choose(kPinned, [&](std::int64_t h) {
                return model().pinned_exists(h) != (verb == Verb::pinned);
            });
        }
        value = kPinned + static_cast<std::int64_t>(below(kHosts - kPinned));
        return true;
    case 'f':
        value = static_cast<std::int64_t>(below(kFlags));
        return true;
    case 'd':
        value = static_cast<std::int64_t>(below(devices_));
        return true;
    case 't':
        value = static_cast<std::int64_t>(below(256));
        return true;
    default:
        break;
    }
    switch (verb) {
    case Verb::malloc:
    case Verb::malloc_async:
        value = pick(sizes_);
        return true;
    case Verb::stream:
        value = chance(3) ? 0 : 1;
        return true;
    case Verb::capture:
        value = static_cast<std::int64_t>(below(3));
        return true;
    case Verb::fail:
        value = static_cast<std::int64_t>(position == 0 ? below(8) : 1 + below(2));
        return true;
    default:
        value = pick(kDurations);
        return true;
    }
}

std::optional<Operation> Generator::draw() {
    std::uint64_t at = below(total_);
    Operation o;
    o.thread = thread_;
    for (const auto& [verb, weight] : weights_) {
        o.verb = verb;
        if (at < weight) break;
        at -= weight;
    }
    const std::string_view kinds = arguments_of(o.verb);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        if (!draw_argument(kinds[i], o.verb, i, o.args[i])) return std::nullopt;
    }
    return o;
}

bool Generator::add(const Operation& o) {
    model().apply(o);
    program_.operations.push_back(o);
    return true;
}

// Puts the order in that an operation lacks: on the device if its stream and the other's are at
// hand, else by a wait of the host.
bool Generator::repair(const Operation& wanted, Stamp missing) {
    const std::string_view kinds = arguments_of(wanted.verb);
    const std::size_t at = kinds.find('s');
    const auto from = model().stream_of_slot(missing.slot, wanted.thread);
    if (at != std::string_view::npos && from && !chance(3)) {
        std::int64_t event = 0;
        const auto one = [&](Verb verb, std::int64_t a, std::int64_t b) {
            return wish({wanted.thread, verb, {a, b}}, 0);
        };
        const auto taken = [&](std::int64_t e) {
            return model().event_exists(e) || (program_.free_running && owner_of(e) != thread_);
        };
        while (event < kEvents && taken(event))
            ++event;
        if (event == kEvents) {
            event = program_.free_running ? thread_ : static_cast<std::int64_t>(below(kEvents));
            one(Verb::unevent, event, 0);
        }
        return one(Verb::event, event, 0) && one(Verb::record, event, *from) &&
               one(Verb::wait, wanted.args[at], event);
    }
    if (from && chance(2)) return wish({wanted.thread, Verb::sync, {*from}}, 0);
    return wish({wanted.thread, Verb::sync_device, {}}, 0);
}

bool Generator::wish(Operation o, int repairs) {
    if (program_.free_running && !keeps_to_itself(o)) return false;
    const Verdict verdict = model().check(o);
    if (verdict.legal) {
        // What a capture refuses and is ended by: now and then.
        if (verdict.code != 0 && o.verb != Verb::end_capture && !chance(12)) return false;
        return add(o);
    }
    if (!verdict.missing || repairs == 0) return false;
    return repair(o, *verdict.missing) && wish(o, repairs - 1);
}

void Generator::try_one() {
    if (threads_ > 1 && chance(4)) thread_ = static_cast<int>(below(threads_));
    // An open capture's thread and stream are the likely ones, an open gate is set soon.
    const auto o = draw();
    if (!o) return;
    Operation wanted = *o;
    if (const auto origin = model().capture_of(thread_)) {
        const std::size_t at = arguments_of(wanted.verb).find('s');
        if (wanted.verb == Verb::end_capture || (at != std::string_view::npos && chance(2)))
            wanted.args[at] = origin->stream;
    }
    wish(wanted, 3);
}

// Captures and gates that are open end; what lives is freed by the interpreter.
void Generator::finish() {
    if (program_.free_running) return;
    for (int thread = 0; thread < kThreads; ++thread) {
        for (int round = 0; round < 4; ++round) {
            const auto origin = model().capture_of(thread);
            if (!origin) break;
            std::int64_t graph = model().graph_exists(0) ? 1 : 0;
            if (model().graph_exists(graph)) wish({thread, Verb::ungraph, {graph}}, 0);
            wish({thread, Verb::device, {origin->device}}, 0);
            wish({thread, Verb::end_capture, {origin->stream, graph}}, 0);
        }
    }
    if (!model().gates_shut()) return;
    // A new non-blocking stream comes behind nothing; its name is kept for this.
    const std::int64_t last = kStreams - 1;
    wish({0, Verb::stream, {last, 1}}, 0);
    for (std::int64_t flag = 0; flag < kFlags; ++flag)
        wish({0, Verb::signal, {last, flag}}, 0);
}

} // namespace

Program generate(std::uint64_t seed, const Profile& profile) {
    return Generator(seed, profile).make();
}

} // namespace random_programs
