#include "core/pool/host_pages.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

using namespace cachealloc;

TEST_CASE("host pages: zeroed, and zeroed again in any part") {
    constexpr std::size_t kBytes = 64 * 1024;
    auto* const memory = static_cast<unsigned char*>(map_host_pages(kBytes));
    REQUIRE(memory != nullptr);
    CHECK(std::all_of(memory, memory + kBytes, [](unsigned char byte) { return byte == 0; }));
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        const std::size_t begin = random() % kBytes;
        const std::size_t end = begin + random() % (kBytes - begin + 1);
        CAPTURE(begin, end);
        std::memset(memory, 0xEE, kBytes);
        zero_host_pages(memory + begin, end - begin);
        bool right = true;
        for (std::size_t i = 0; i < kBytes; ++i)
            right = right && memory[i] == (i >= begin && i < end ? 0 : 0xEE);
        REQUIRE(right);
    }
    unmap_host_pages(memory, kBytes);
}
