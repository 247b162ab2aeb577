#include "core/pool/affinity.h"

#include <catch2/catch.hpp>
#include <set>

using namespace cachealloc;

TEST_CASE("Affinity: a state is known by size, live bytes and the size before") {
    Affinity affinity;
    const std::uint64_t key = Affinity::key(4096, 1 << 20, 512);
    CHECK(affinity.recall(key) == 0);
    affinity.remember(key, 42);
    CHECK(affinity.recall(key) == 42);
    CHECK(affinity.recall(Affinity::key(4608, 1 << 20, 512)) == 0);
    CHECK(affinity.recall(Affinity::key(4096, 1 << 21, 512)) == 0);
    CHECK(affinity.recall(Affinity::key(4096, 1 << 20, 1024)) == 0);
    affinity.remember(key, 43);
    CHECK(affinity.recall(key) == 43);
}

TEST_CASE("Affinity: most of a few hundred states are kept") {
    Affinity affinity;
    std::set<std::uint64_t> keys;
    for (std::uint64_t i = 1; i <= 408; ++i) {
        keys.insert(Affinity::key(512 * (i % 23 + 1), 512 * i * 37, 512 * (i % 7)));
        affinity.remember(Affinity::key(512 * (i % 23 + 1), 512 * i * 37, 512 * (i % 7)), i);
    }
    CHECK(keys.size() == 408);
    CHECK(keys.count(0) == 0);
    std::uint64_t kept = 0;
    for (const std::uint64_t key : keys)
        kept += affinity.recall(key) != 0 ? 1 : 0;
    CHECK(kept > 380);
}
