#include "core/options.h"

#include "options_checks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace cachealloc;

namespace {

// Whether every member holds something its documentation allows.
bool valid(const Options& options) {
    const auto allowed = [](std::uint8_t divisions) {
        return divisions <= 64 && (divisions & (divisions - 1)) == 0;
    };
    return options.free_mode <= FreeMode::async && options.async_mode <= AsyncMode::driver &&
           options.order <= OrderStart::wait && options.stacks <= StackMode::off &&
           options.unwinder <= UnwinderChoice::gcc && options.ring_mb >= 1 &&
           options.ring_mb <= 65536 && options.stack_depth >= 1 && options.stack_depth <= 256 &&
           options.log <= LogDetail::verbose && options.slack_mb <= 1048576 &&
           options.slack_percent <= 100 && options.cache_mb <= 1048576 &&
           (options.max_split_size_mb == Options::kUnlimited ||
            (options.max_split_size_mb >= options.large_segment_size_mb &&
             options.max_split_size_mb <= 1048576)) &&
           options.large_segment_size_mb > 10 && options.large_segment_size_mb <= 1048576 &&
           options.max_non_split_rounding_mb >= options.large_segment_size_mb &&
           options.max_non_split_rounding_mb <= 1048576 &&
           options.per_process_memory_fraction.billionths <= Fraction::kOne &&
           options.garbage_collection_threshold.billionths < Fraction::kOne &&
           std::ranges::all_of(options.roundup_power2_divisions, allowed);
}

} // namespace

TEST_CASE("options: an empty text gives the defaults", "[options]") {
    const Options options = clean("");
    CHECK(options == Options{});
    CHECK(clean(" \t\n") == Options{});
    CHECK(clean(",") == Options{});
    CHECK_FALSE(options.off);
    CHECK(options.free_mode == FreeMode::automatic);
    CHECK(options.async_mode == AsyncMode::pool);
    CHECK(options.order == OrderStart::automatic);
    CHECK(options.slack_mb == 64);
    CHECK(options.slack_percent == 12);
    CHECK(options.cache_mb == 1024);
    CHECK(options.max_split_size_mb == Options::kUnlimited);
    CHECK(options.large_segment_size_mb == 20);
    CHECK(options.max_non_split_rounding_mb == 20);
    CHECK(options.per_process_memory_fraction == Fraction{Fraction::kOne});
    CHECK(options.garbage_collection_threshold == Fraction{});
    CHECK_FALSE(options.expandable_segments);
    CHECK_FALSE(options.throw_on_cudamalloc_oom);
    CHECK_FALSE(options.release_lock_on_cudamalloc);
    CHECK(options.roundup_power2_divisions == RoundupDivisions{});
    CHECK(options.pool);
    CHECK(options.record);
    CHECK(options.stacks == StackMode::alloc);
    CHECK(options.unwinder == UnwinderChoice::automatic);
    CHECK(options.ring_mb == 64);
    CHECK(options.stack_depth == 64);
    CHECK_FALSE(options.stats);
    CHECK_FALSE(options.strict);
    CHECK(options.log == LogDetail::normal);
}

TEST_CASE("options: each option is read", "[options]") {
    const Options options =
        clean("free:async,order:finished,slack_mb:0,slack_percent:100,"
              "cache_mb:1048576,max_split_size_mb:20,"
              "large_segment_size_mb:12,max_non_split_rounding_mb:1048576,"
              "per_process_memory_fraction:0.75,garbage_collection_threshold:0.8,"
              "throw_on_cudamalloc_oom:True,release_lock_on_cudamalloc:True,"
              "expandable_segments:True,"
              "roundup_power2_divisions:8,pool:False,record:off,stacks:all,unwinder:gcc,"
              "ring_mb:65536,stack_depth:256,stats:True,strict:True,"
              "log:verbose");
    CHECK(options.free_mode == FreeMode::async);
    CHECK(options.order == OrderStart::finished);
    CHECK(options.slack_mb == 0);
    CHECK(options.slack_percent == 100);
    CHECK(options.cache_mb == 1048576);
    CHECK(options.max_split_size_mb == 20);
    CHECK(options.large_segment_size_mb == 12);
    CHECK(options.max_non_split_rounding_mb == 1048576);
    CHECK(options.per_process_memory_fraction == Fraction{750'000'000});
    CHECK(options.garbage_collection_threshold == Fraction{800'000'000});
    CHECK(options.throw_on_cudamalloc_oom);
    CHECK(options.release_lock_on_cudamalloc);
    CHECK(options.expandable_segments);
    CHECK(std::ranges::count(options.roundup_power2_divisions, 8) == 16);
    CHECK_FALSE(options.pool);
    CHECK_FALSE(options.record);
    CHECK(options.stacks == StackMode::all);
    CHECK(options.unwinder == UnwinderChoice::gcc);
    CHECK(options.ring_mb == 65536);
    CHECK(options.stack_depth == 256);
    CHECK(options.stats);
    CHECK(options.strict);
    CHECK(options.log == LogDetail::verbose);
    CHECK(clean("record:on").record);
    CHECK(clean("stacks:off").stacks == StackMode::off);
    CHECK(clean("stacks:alloc").stacks == StackMode::alloc);
    CHECK(clean("unwinder:libunwind").unwinder == UnwinderChoice::libunwind);
    CHECK(clean("order:auto").order == OrderStart::automatic);
    CHECK(clean("order:fenced").order == OrderStart::fenced);
    CHECK(clean("order:wait").order == OrderStart::wait);
    CHECK(clean("log:quiet").log == LogDetail::quiet);
    CHECK(clean("max_split_size_mb:unlimited").max_split_size_mb == Options::kUnlimited);
}

TEST_CASE("options: whitespace counts for nothing", "[options]") {
    CHECK(clean(" free : async ,\tsla ck_mb:1 2\n,") == clean("free:async,slack_mb:12"));
    CHECK(clean("roundup_power2_divisions : [ 256 : 1 , > : 4 ] ") ==
          clean("roundup_power2_divisions:[256:1,>:4]"));
}

TEST_CASE("options: off is the whole text or nothing", "[options]") {
    Options off;
    off.off = true;
    CHECK(clean("off") == off);
    CHECK(clean(" off\n") == off);
    CHECK(within(complaint("Off"), "\"Off\""));
    const std::string beside = complaint("off,free:async", clean("free:async"));
    CHECK(within(beside, "off"));
    CHECK(within(beside, "whole text"));
    CHECK(within(complaint("off:True"), "\"True\""));
}

TEST_CASE("options: a list names intervals by their size", "[options]") {
    using List = RoundupDivisions;
    const auto read = [](std::string_view list) {
        return clean("roundup_power2_divisions:" + std::string(list)).roundup_power2_divisions;
    };
    // The first entry reaches down, `>` reaches up, what nobody names in between stays 0.
    CHECK(read("[256:1,512:2,1024:4,>:8]") == List{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8});
    CHECK(read("[4:16,32:2]") == List{16, 16, 16, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    CHECK(read("[1:64]") == List{64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    CHECK(read("[>:4]") == List{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4});
    CHECK(read("[1:0,32768:2]")[15] == 2);
    CHECK(read("[1:0,65536:2]")[15] == 2);
    CHECK(read("[65536:2,>:4]")[15] == 2); // nothing is left above
    CHECK(clean("roundup_power2_divisions:[1:2,>:4],free:async").free_mode == FreeMode::async);
}

TEST_CASE("options: the interval of a size", "[options]") {
    CHECK(roundup_interval(0) == 0);
    CHECK(roundup_interval(512) == 0);
    CHECK(roundup_interval(2 * kMiB - 1) == 0);
    CHECK(roundup_interval(2 * kMiB) == 1);
    CHECK(roundup_interval(256 * kMiB) == 8);
    CHECK(roundup_interval(512 * kMiB - 1) == 8);
    CHECK(roundup_interval(32768 * kMiB) == 15);
    CHECK(roundup_interval(~std::uint64_t{0}) == 15);
}

TEST_CASE("options: bytes are worked out without overflow", "[options]") {
    Options options;
    CHECK(options.slack_bytes(0) == 64 * kMiB);
    CHECK(options.slack_bytes(100'000 * kMiB) == 12'000 * kMiB);
    options.slack_percent = 100;
    CHECK(options.slack_bytes(~std::uint64_t{0}) == ~std::uint64_t{0});
    CHECK(Options{}.ring_bytes() == 64 * kMiB);
    CHECK(options.cache_bytes() == 1024 * kMiB);
    CHECK(options.max_split_bytes() == Options::kUnlimited);
    options.max_split_size_mb = 20;
    CHECK(options.max_split_bytes() == 20 * kMiB);
}

TEST_CASE("options: an unknown key names its nearest neighbour", "[options]") {
    const std::string line = complaint("slak_mb:77,free:async", clean("free:async"));
    CHECK(line == "unknown option \"slak_mb\" (value \"77\") ignored; nearest known option: "
                  "slack_mb; allowed: 0 to 1048576; default: 64");
    CHECK(within(complaint("max_split_size:40"), "max_split_size_mb"));
    CHECK(within(complaint("roundup_power_2_divisions:4"), "roundup_power2_divisions"));
    CHECK(within(complaint("Free:async"), "nearest known option: free;"));
    CHECK(within(complaint("stat"), "nearest known option: stats;"));
    CHECK(within(complaint("log_level:2"), "nearest known option: log;"));
    CHECK(within(complaint("order_of_reuse:2"), "nearest known option: order;"));
    CHECK(within(complaint(":async"), "\"\" (value \"async\")"));
}

TEST_CASE("options: a bad value is named and the default is used", "[options]") {
    CHECK(complaint("free:asink,slack_mb:1", clean("slack_mb:1")) ==
          "option free: value \"asink\" cannot be used (not known), the default is used; "
          "allowed: auto, sync, async; default: auto");
    CHECK(complaint("max_split_size_mb:19") ==
          "option max_split_size_mb: value \"19\" cannot be used (out of range), the default is "
          "used; allowed: large_segment_size_mb to 1048576, or unlimited; default: unlimited");
    CHECK(within(complaint("cache_mb:18446744073709551616"), "(out of range)"));
    for (const char* text : {"free",
                             "free:",
                             "free:Async",
                             "free:async:sync",
                             "free:[async]",
                             "free:asyncx",
                             "order:ordered",
                             "order:automatic",
                             "slack_mb:1048577",
                             "slack_mb:-1",
                             "slack_mb:+1",
                             "slack_mb:1.5",
                             "slack_mb:0x10",
                             "slack_mb:12GB",
                             "slack_mb:99999999999999999999999",
                             "slack_mb:unlimited",
                             "slack_percent:101",
                             "record:True",
                             "stacks:free",
                             "unwinder:automatic",
                             "ring_mb:0",
                             "ring_mb:65537",
                             "stack_depth:0",
                             "stack_depth:257",
                             "cache_mb:[1]",
                             "stats:true",
                             "stats:1",
                             "stats:True]",
                             "strict:yes",
                             "log:",
                             "roundup_power2_divisions:3",
                             "roundup_power2_divisions:128",
                             "roundup_power2_divisions:[]",
                             "roundup_power2_divisions:[256:1",
                             "roundup_power2_divisions:256:1",
                             "roundup_power2_divisions:[256:1]x",
                             "roundup_power2_divisions:[256:3]",
                             "roundup_power2_divisions:[3:1]",
                             "roundup_power2_divisions:[0:1]",
                             "roundup_power2_divisions:[131072:1]",
                             "roundup_power2_divisions:[256]",
                             "roundup_power2_divisions:[256:1,512:2:3]",
                             "roundup_power2_divisions:[>:]",
                             "large_segment_size_mb:10",
                             "max_non_split_rounding_mb:19",
                             "max_non_split_rounding_mb:unlimited",
                             "per_process_memory_fraction:1.1",
                             "per_process_memory_fraction:1.000000001",
                             "per_process_memory_fraction:-0.1",
                             "per_process_memory_fraction:",
                             "per_process_memory_fraction:.",
                             "per_process_memory_fraction:0..5",
                             "per_process_memory_fraction:0.5x",
                             "per_process_memory_fraction:1e",
                             "per_process_memory_fraction:1e+",
                             "per_process_memory_fraction:1e+-3",
                             "per_process_memory_fraction:1e-3e",
                             "per_process_memory_fraction:nan",
                             "per_process_memory_fraction:0x1",
                             "per_process_memory_fraction:1e99999999999999999999",
                             "per_process_memory_fraction:99999999999999999999999999999",
                             "garbage_collection_threshold:1",
                             "garbage_collection_threshold:1.0",
                             "garbage_collection_threshold:-0.5",
                             "throw_on_cudamalloc_oom:true",
                             "release_lock_on_cudamalloc:1",
                             "expandable_segments:yes"}) {
        const std::string line = complaint(text);
        const std::string_view key = std::string_view(text).substr(
            0, std::min(std::string_view(text).find(':'), std::string_view(text).size()));
        INFO(line);
        CHECK(within(line, key));
        CHECK(within(line, "; allowed: "));
        CHECK(within(line, "; default: "));
    }
}

TEST_CASE("options: one mistake costs one item", "[options]") {
    ParseReport report;
    const Options options = parse_options(
        "roundup_power2_divisions:[256:1,free:async,bogus:[1:2],slack_mb:7,stats:True", report);
    CHECK(options == clean("free:async,slack_mb:7,stats:True"));
    CHECK(report.size() == 2);
    CHECK(report.mistakes() == 2);
}

TEST_CASE("options: of a key given twice the last counts, and it is said", "[options]") {
    ParseReport report;
    const Options options = parse_options("free:async,slack_mb:1,slack_mb:2,free:auto", report);
    CHECK(options == clean("slack_mb:2"));
    CHECK(report.mistakes() == 0);
    REQUIRE(report.size() == 2);
    CHECK(report[0] == "option slack_mb is given more than once; the last one counts, value \"2\"");
    CHECK(within(report[1], "free"));

    ParseReport bad;
    CHECK(parse_options("free:async,free:bogus", bad) == Options{});
    CHECK(bad.size() == 2);
    CHECK(bad.mistakes() == 1);
}

TEST_CASE("options: the report is bounded and each line fits a terminal", "[options]") {
    std::string text;
    for (int i = 0; i < 100; ++i) {
        text += std::string(1000, 'k') + ":\x1b[2J\x07" + std::string(1000, 'v') + ",";
    }
    ParseReport report;
    CHECK(parse_options(text, report) == Options{});
    CHECK(report.size() == ParseReport::kMaxMessages);
    CHECK(report.dropped() == 100 - ParseReport::kMaxMessages);
    CHECK(report.mistakes() == 100);
    for (std::size_t i = 0; i < report.size(); ++i) {
        CHECK(report[i].size() < ParseReport::kMaxMessageBytes);
        CHECK(std::ranges::all_of(report[i], [](char c) { return c >= ' ' && c <= '~'; }));
        CHECK(within(report[i], "kkk\"..."));
    }

    ParseReport longest;
    longest.add(true, std::string(1000, 'x'));
    CHECK(longest[0].size() == ParseReport::kMaxMessageBytes);
}

TEST_CASE("options: the table is complete, and its defaults are the members'", "[options]") {
    std::set<std::string_view> names;
    std::string text;
    for (std::size_t i = 0; i < option_count(); ++i) {
        const OptionInfo info = option_info(i);
        CHECK(names.insert(info.name).second);
        CHECK_FALSE(info.meaning.empty());
        CHECK_FALSE(info.allowed.empty());
        text.append(info.name).append(":").append(info.default_text).append(",");
        CHECK(within(describe_options(),
                     "| " + std::string(info.name) + " | " + info.default_text + " | "));
    }
    CHECK(clean(text) == Options{});
    CHECK(within(describe_options(), "| off |"));
    CHECK(within(format_options(Options{}), "roundup_power2_divisions:0,"));
}

TEST_CASE("options: what is written out reads back the same", "[options]") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](std::uint64_t end) {
        return std::uniform_int_distribution<std::uint64_t>(0, end - 1)(random);
    };
    for (int round = 0; round < 2000; ++round) {
        Options options;
        options.free_mode = static_cast<FreeMode>(below(3));
        options.async_mode = static_cast<AsyncMode>(below(2));
        options.order = static_cast<OrderStart>(below(4));
        options.slack_mb = below(1048577);
        options.slack_percent = below(101);
        options.cache_mb = below(1048577);
        options.large_segment_size_mb = 11 + below(1048566);
        const auto from_large = [&] {
            const std::uint64_t large = options.large_segment_size_mb;
            return large + below(1048577 - large);
        };
        options.max_split_size_mb = below(2) == 0 ? Options::kUnlimited : from_large();
        options.max_non_split_rounding_mb = from_large();
        options.per_process_memory_fraction.billionths =
            static_cast<std::uint32_t>(below(Fraction::kOne + 1));
        options.garbage_collection_threshold.billionths =
            static_cast<std::uint32_t>(below(Fraction::kOne));
        options.expandable_segments = below(2) == 0;
        options.throw_on_cudamalloc_oom = below(2) == 0;
        options.release_lock_on_cudamalloc = below(2) == 0;
        for (auto& divisions : options.roundup_power2_divisions) {
            const auto power = below(8);
            divisions = static_cast<std::uint8_t>(power == 0 ? 0 : 1 << (power - 1));
        }
        options.pool = below(2) == 0;
        options.record = below(2) == 0;
        options.stacks = static_cast<StackMode>(below(3));
        options.unwinder = static_cast<UnwinderChoice>(below(3));
        options.ring_mb = 1 + below(65536);
        options.stack_depth = 1 + below(256);
        options.stats = below(2) == 0;
        options.strict = below(2) == 0;
        options.log = static_cast<LogDetail>(below(3));
        REQUIRE(valid(options));
        REQUIRE(clean(format_options(options)) == options);
    }
    Options off;
    off.off = true;
    CHECK(clean(format_options(off)) == off);
}

TEST_CASE("options: no text, however wild, gives anything but valid options", "[options]") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](std::size_t end) {
        return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
    };
    std::vector<std::string> words = {":",
                                      ",",
                                      "[",
                                      "]",
                                      ">",
                                      "off",
                                      "True",
                                      "False",
                                      "0",
                                      "1",
                                      "64",
                                      "20",
                                      "256",
                                      "unlimited",
                                      "0.5",
                                      "1e-3",
                                      " ",
                                      "\n",
                                      "async",
                                      "fenced",
                                      "1048576",
                                      "-",
                                      "18446744073709551616"};
    for (std::size_t i = 0; i < option_count(); ++i) {
        words.push_back(std::string(option_info(i).name));
    }
    std::size_t changed = 0;
    for (int round = 0; round < 50'000; ++round) {
        std::string text;
        for (std::size_t length = below(24); length != 0; --length) {
            switch (below(8)) {
            case 0:
                text += static_cast<char>(below(256));
                break;
            case 1: // something that is right, so that wild text stands beside it
                text += "slack_mb:" + std::to_string(below(2000)) + ",";
                break;
            default:
                text += words[below(words.size())];
            }
        }
        ParseReport report;
        const Options options = parse_options(text, report);
        if (!valid(options)) FAIL("invalid options from: " << text);
        if (report.mistakes() > report.size() + report.dropped())
            FAIL("report does not add up: " << text);
        if (options != Options{}) ++changed;
        // Nothing is taken silently: what was read must give the same options when written out.
        ParseReport again;
        if (parse_options(format_options(options), again) != options || !again.empty()) {
            FAIL("does not read back: " << text);
        }
    }
    CHECK(changed > 1000);
}
