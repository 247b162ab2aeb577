#include "core/record/stack_table.h"

#include "tests/unit/record/recording.h"
#include "tests/unit/record/small_file.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <thread>
#include <vector>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::Frame;
using trace::SectionType;
using trace::StackSlot;

namespace {

class Stacks {
  public:
    explicit Stacks(std::uint64_t slots, std::uint64_t frames)
        : small_({{SectionType::stacks, sizeof(StackSlot), slots * sizeof(StackSlot), 0,
                   slots * sizeof(StackSlot)},
                  {SectionType::frames, sizeof(Frame), frames * sizeof(Frame), 4096, 0}}),
          table_(small_.file(), small_.space(0), small_.space(1)) {}

    std::uint32_t intern(const std::vector<Frame>& frames, bool cut = false) {
        return table_.intern(frames, cut, 5);
    }
    StackTable& operator*() { return table_; }
    const StackSlot& slot(std::uint32_t number) {
        return reinterpret_cast<const StackSlot*>(small_.space(0).data)[number - 1];
    }
    std::vector<Frame> frames(std::uint32_t number) const {
        const View view(small_.path());
        const auto found = view.frames(number);
        return {found.begin(), found.end()};
    }
    SmallFile& small() { return small_; }

  private:
    SmallFile small_;
    StackTable table_;
};

} // namespace

TEST_CASE("stack table: a stack keeps its number, and its frames", "[record]") {
    Stacks stacks(1024, 8192);
    const std::vector<std::vector<Frame>> all = {
        {1}, {1, 2}, {2, 1}, {1, 2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5}, {4, 3, 2, 1}, {0, 0}, {0}};
    std::set<std::uint32_t> numbers;
    for (const auto& frames : all) {
        const std::uint32_t number = stacks.intern(frames);
        CHECK(number != 0);
        CHECK(numbers.insert(number).second);
        CHECK(stacks.intern(frames) == number);
        CHECK(stacks.frames(number) == frames);
        CHECK(stacks.slot(number).modules == 5);
        CHECK(stacks.slot(number).flags == 0);
    }
}

TEST_CASE("stack table: a stack that goes on is another one, as is one of other code", "[record]") {
    Stacks stacks(1024, 8192);
    const std::uint32_t whole = stacks.intern({1, 2, 3});
    const std::uint32_t cut = stacks.intern({1, 2, 3}, true);
    CHECK(cut != whole);
    CHECK(stacks.slot(cut).flags == trace::kCutStack);
    (*stacks).next_generation();
    const std::uint32_t later = stacks.intern({1, 2, 3});
    CHECK(later != whole);
    CHECK(later != cut);
    CHECK(stacks.intern({1, 2, 3}) == later);
}

TEST_CASE("stack table: totals are exact", "[record]") {
    Stacks stacks(1024, 8192);
    const std::uint32_t number = stacks.intern({1, 2});
    (*stacks).add(0, 100);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (std::uint64_t bytes = 1; bytes <= 1000; ++bytes)
                (*stacks).add(number, bytes);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(stacks.slot(number).allocations == 4000);
    CHECK(stacks.slot(number).bytes == 4 * 500'500);
}

TEST_CASE("stack table: without room for frames the known stacks still work", "[record]") {
    Stacks stacks(4096, 1024);
    std::vector<std::uint32_t> numbers;
    for (Frame i = 1; i <= 400; ++i)
        numbers.push_back(stacks.intern({i, 2, 3, 4}));
    CHECK(std::ranges::count(numbers, 0U) == 400 - 1024 / 4);
    CHECK(std::ranges::find(numbers, 0U) == numbers.begin() + 256);
    for (Frame i = 1; i <= 256; ++i)
        CHECK(stacks.intern({i, 2, 3, 4}) == numbers[i - 1]);
    CHECK(stacks.intern({9999}) == 0); // not one frame more
    CHECK(stacks.small().file().header().sections[1].used == 1024 * sizeof(Frame));
}

TEST_CASE("stack table: without slots there are no new stacks, and no room is wasted", "[record]") {
    Stacks stacks(256, 8192);
    std::set<std::uint32_t> numbers;
    for (Frame i = 1; i <= 2000; ++i) {
        const std::uint32_t number = stacks.intern({i, i});
        if (number != 0) CHECK(numbers.insert(number).second);
    }
    CHECK(numbers.size() > 128);
    CHECK(numbers.size() <= 256);
    CHECK(stacks.small().file().header().sections[1].used == numbers.size() * 2 * sizeof(Frame));
}

TEST_CASE("stack table: threads that see the same stacks first agree on them", "[record]") {
    Stacks stacks(8192, 65536);
    constexpr std::size_t kStacks = 2000;
    std::array<std::vector<std::uint32_t>, 4> seen;
    std::vector<std::thread> threads;
    for (auto& mine : seen) {
        threads.emplace_back([&] {
            for (Frame i = 1; i <= kStacks; ++i)
                mine.push_back(stacks.intern({i, i + 1, i + 2}));
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (Frame i = 1; i <= kStacks; ++i) {
        const std::uint32_t number = seen[0][i - 1];
        REQUIRE(number != 0);
        for (const auto& mine : seen)
            REQUIRE(mine[i - 1] == number);
        REQUIRE(stacks.slot(number).frames == 3);
    }
    CHECK(stacks.frames(seen[0][41]) == std::vector<Frame>{42, 43, 44});
}

TEST_CASE("stack table: hashes differ in all their bits", "[record]") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    // A stack and the same with one bit changed: half the bits of the hash change, in each place.
    std::array<int, 64> changed{};
    constexpr int kRounds = 4000;
    for (int round = 0; round < kRounds; ++round) {
        std::vector<Frame> frames(1 + random() % 40);
        for (Frame& frame : frames)
            frame = 0x7f0000000000 + random() % (1 << 24);
        const std::uint64_t hash = StackTable::hash_of(frames, 0);
        frames[random() % frames.size()] ^= std::uint64_t{1} << random() % 47;
        const std::uint64_t difference = hash ^ StackTable::hash_of(frames, 0);
        for (std::size_t bit = 0; bit < 64; ++bit)
            changed[bit] += static_cast<int>(difference >> bit & 1);
    }
    for (const int count : changed)
        CHECK(std::abs(count - kRounds / 2) < kRounds / 10);
}
