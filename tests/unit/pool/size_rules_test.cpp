#include "core/pool/size_rules.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

using namespace cachealloc;

namespace {

PowerOfTwoDivisions all_intervals(std::uint8_t parts) {
    PowerOfTwoDivisions divisions{};
    divisions.fill(parts);
    return divisions;
}

} // namespace

TEST_CASE("size_rules: requests are rounded up to blocks of 512 bytes") {
    const PowerOfTwoDivisions off{};
    CHECK(rounded_size(1, off) == 512);
    CHECK(rounded_size(511, off) == 512);
    CHECK(rounded_size(512, off) == 512);
    CHECK(rounded_size(513, off) == 1024);
    CHECK(rounded_size(kMiB, off) == kMiB);
    CHECK(rounded_size(kMiB + 1, off) == kMiB + 512);
    CHECK(rounded_size(140 * kGiB + 1, off) == 140 * kGiB + 512);
}

TEST_CASE("size_rules: divisions of powers of two, as PyTorch documents them") {
    // PyTorch's example: 1200 with 4 divisions becomes 1280 (of 1024, 1280, 1536, 1792). Steps
    // below 512 bytes do not exist here nor in PyTorch, so the example counts in KiB and MiB.
    const PowerOfTwoDivisions four = all_intervals(4);
    CHECK(rounded_size(1200, four) == 1536);
    CHECK(rounded_size(1200 * kKiB, four) == 1280 * kKiB);
    CHECK(rounded_size(1200 * kMiB, four) == 1280 * kMiB);
    CHECK(rounded_size(1280 * kKiB, four) == 1280 * kKiB);
    CHECK(rounded_size(1280 * kKiB + 1, four) == 1536 * kKiB);
    CHECK(rounded_size(1793 * kKiB, four) == 2048 * kKiB);
    CHECK(rounded_size(2048 * kKiB, four) == 2048 * kKiB);
    // Up to 512 bytes a division the plain rounding holds.
    CHECK(rounded_size(2048, four) == 2048);
    CHECK(rounded_size(2049, four) == 2560);
    CHECK(rounded_size(1500, four) == 1536);
}

TEST_CASE("size_rules: each interval has divisions of its own, the ends serve the rest") {
    PowerOfTwoDivisions divisions{};
    divisions[0] = 2;
    divisions[1] = 4;
    divisions[15] = 8;
    CHECK(rounded_size(300 * kKiB, divisions) == 384 * kKiB);
    CHECK(rounded_size(kMiB + 1, divisions) == kMiB + 512 * kKiB);
    CHECK(rounded_size(2 * kMiB + 1, divisions) == 2 * kMiB + 512 * kKiB);
    CHECK(rounded_size(4 * kMiB + 1, divisions) == 4 * kMiB + 512);
    CHECK(rounded_size(16 * kGiB + 1, divisions) == 16 * kGiB + 512);
    CHECK(rounded_size(32 * kGiB + 1, divisions) == 36 * kGiB);
    CHECK(rounded_size(64 * kGiB + 1, divisions) == 72 * kGiB);
    CHECK(rounded_size(3 * kMiB, all_intervals(1)) == 3 * kMiB);
}

TEST_CASE("size_rules: rounding is enough, aligned, minimal and monotone") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20000; ++i) {
        const std::uint64_t parts = std::uint64_t{1} << random() % 7;
        const PowerOfTwoDivisions divisions = all_intervals(static_cast<std::uint8_t>(parts));
        const std::uint64_t bytes = 1 + (random() >> (24 + random() % 39));
        const std::uint64_t rounded = rounded_size(bytes, divisions);
        CAPTURE(bytes, parts, rounded);
        REQUIRE(rounded >= bytes);
        REQUIRE(rounded % kBlockAlignment == 0);
        REQUIRE(rounded_size(rounded, divisions) == rounded);
        REQUIRE(rounded_size(bytes + 1, divisions) >= rounded);
        const std::uint64_t waste = rounded - bytes;
        REQUIRE((waste < kBlockAlignment || waste < bytes / parts + 1));
    }
}

TEST_CASE("BinIndex: small sizes have fixed bins, large ones claim theirs") {
    const auto index = std::make_unique<BinIndex>();
    CHECK(index->bin(512) == 0);
    CHECK(index->bin(1024) == 1);
    CHECK(index->bin(kMiB) == BinIndex::kSmallBins - 1);
    const std::uint32_t first = index->bin(kMiB + 512);
    const std::uint32_t second = index->bin(3 * kMiB);
    CHECK(first >= BinIndex::kSmallBins);
    CHECK(first < BinIndex::kBins);
    CHECK(second != first);
    CHECK(index->bin(kMiB + 512) == first);
    CHECK(index->bin(3 * kMiB) == second);
}

TEST_CASE("BinIndex: no two sizes share a bin and full means none, never a wrong one") {
    const auto index = std::make_unique<BinIndex>();
    std::set<std::uint32_t> bins;
    std::vector<std::uint32_t> given;
    for (std::uint64_t i = 0; i < 3000; ++i) {
        const std::uint32_t bin = index->bin(kMiB + (i + 1) * 64 * kKiB);
        given.push_back(bin);
        if (bin == BinIndex::kNone) continue;
        REQUIRE(bin < BinIndex::kBins);
        REQUIRE(bins.insert(bin).second);
    }
    CHECK(bins.size() > BinIndex::kLargeBins * 9 / 10);
    CHECK(bins.size() <= BinIndex::kLargeBins);
    for (std::uint64_t i = 0; i < 3000; ++i) {
        REQUIRE(index->bin(kMiB + (i + 1) * 64 * kKiB) == given[i]);
    }
}

TEST_CASE("BinIndex: threads that claim at once agree") {
    const auto index = std::make_unique<BinIndex>();
    constexpr std::uint64_t kSizes = 400;
    std::vector<std::vector<std::uint32_t>> seen(4, std::vector<std::uint32_t>(kSizes));
    std::vector<std::thread> threads;
    std::atomic<int> ready{0};
    for (std::size_t t = 0; t < seen.size(); ++t) {
        threads.emplace_back([&, t] {
            ++ready;
            while (ready.load() < 4)
                std::this_thread::yield();
            for (std::uint64_t i = 0; i < kSizes; ++i) {
                seen[t][i] = index->bin(kMiB + (i + 1) * kBlockAlignment);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (std::size_t t = 1; t < seen.size(); ++t)
        CHECK(seen[t] == seen[0]);
}
