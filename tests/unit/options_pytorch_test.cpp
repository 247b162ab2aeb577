// Options under PyTorch's names: limits that depend on each other, fractions, and those that a
// preload has no use for.
#include "core/options.h"

#include "options_checks.h"

#include <catch2/catch.hpp>
#include <string>

using namespace cachealloc;

TEST_CASE("options: large_segment_size_mb limits others, wherever in the text it stands",
          "[options]") {
    const Options larger = clean("large_segment_size_mb:64,max_split_size_mb:64");
    CHECK(larger.max_split_size_mb == 64);
    CHECK(larger.max_non_split_rounding_mb == 64); // follows, where it is not given
    CHECK(larger.large_segment_bytes() == 64 * kMiB);
    CHECK(larger.max_non_split_rounding_bytes() == 64 * kMiB);
    CHECK(clean("max_split_size_mb:64,large_segment_size_mb:64") == larger);
    CHECK(clean("max_non_split_rounding_mb:100,large_segment_size_mb:64,max_split_size_mb:64")
              .max_non_split_rounding_mb == 100);
    const Options smaller =
        clean("max_split_size_mb:11,max_non_split_rounding_mb:12,large_segment_size_mb:11");
    CHECK(smaller.max_split_size_mb == 11);
    CHECK(smaller.max_non_split_rounding_mb == 12);
    CHECK(complaint("max_split_size_mb:63,large_segment_size_mb:64",
                    clean("large_segment_size_mb:64")) ==
          "option max_split_size_mb: value \"63\" cannot be used (out of range), the default is "
          "used; allowed: large_segment_size_mb to 1048576, or unlimited; default: unlimited");
    CHECK(within(complaint("max_non_split_rounding_mb:20,large_segment_size_mb:64",
                           clean("large_segment_size_mb:64")),
                 "; default: 64"));
    // What is not taken limits nothing; of two the last counts.
    CHECK(complaint("large_segment_size_mb:10,max_split_size_mb:20", clean("max_split_size_mb:20"))
              .size() > 0);
    ParseReport report;
    const Options last = parse_options(
        "large_segment_size_mb:30,max_split_size_mb:40,large_segment_size_mb:50", report);
    CHECK(last == clean("large_segment_size_mb:50"));
    CHECK(report.size() == 2);
    CHECK(report.mistakes() == 1);
}

TEST_CASE("options: fractions are exact to a billionth", "[options]") {
    const auto read = [](std::string_view text) {
        return clean("per_process_memory_fraction:" + std::string(text))
            .per_process_memory_fraction.billionths;
    };
    CHECK(read("0") == 0);
    CHECK(read("1") == 1'000'000'000);
    CHECK(read("1.000") == 1'000'000'000);
    CHECK(read("0.8") == 800'000'000);
    CHECK(read(".25") == 250'000'000);
    CHECK(read("1.") == 1'000'000'000);
    CHECK(read("0.123456789") == 123'456'789);
    CHECK(read("0.1234567899") == 123'456'789);
    CHECK(read("00000000000000000000000000000000000000000000.5") == 500'000'000);
    CHECK(read("0.33333333333333333333333333333333333333333333") == 333'333'333);
    CHECK(read("5e-1") == 500'000'000);
    CHECK(read("2.5E-1") == 250'000'000);
    CHECK(read("1e+0") == 1'000'000'000);
    CHECK(read("1e-999") == 0);
    CHECK(read("0e999") == 0);
    CHECK(clean("garbage_collection_threshold:0") == Options{});
    CHECK(clean("garbage_collection_threshold:0.999999999").garbage_collection_threshold ==
          Fraction{999'999'999});
    CHECK(Fraction{Fraction::kOne}.of(~std::uint64_t{0}) == ~std::uint64_t{0});
    CHECK(Fraction{500'000'000}.of(3) == 1);
    CHECK(Fraction{800'000'000}.of(std::uint64_t{141} << 30) == 121118077747); // 112.8 GiB
    CHECK(Fraction{}.of(~std::uint64_t{0}) == 0);
    CHECK(within(format_options(clean("per_process_memory_fraction:0.050")),
                 "per_process_memory_fraction:0.05,"));
}

TEST_CASE("options: what has no meaning below a program is said to have none", "[options]") {
    for (const char* text :
         {"backend:native", "expandable_segments_reserve:0.5", "pinned_free_catch_all:True",
          "expandable_segments_reserve_by_class:[a:0.25,b:8G]", "release_lock_on_hipmalloc:True",
          "pinned_use_cuda_host_register:True", "pinned_num_register_threads:8",
          "pinned_use_background_threads:True", "pinned_reserve_segment_size_mb:4",
          "graph_capture_record_stream_reuse:True", "pinned_max_cached_size_mb:1",
          "pinned_max_round_threshold_mb:1", "pinned_use_hip_host_register:True"}) {
        ParseReport report;
        INFO(text);
        CHECK(parse_options(std::string(text) + ",free:async", report) == clean("free:async"));
        CHECK(report.mistakes() == 0);
        REQUIRE(report.size() == 1);
        CHECK(within(report[0], ") ignored: "));
        CHECK_FALSE(within(report[0], "unknown"));
        CHECK(report[0].size() < 200);
    }
}
