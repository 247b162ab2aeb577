#include "pool_fixture.h"

#include <vector>

using namespace cachealloc;

namespace {

Options growable(std::uint64_t slack_mb = 0) {
    Options options = pool_options();
    options.expandable_segments = true;
    options.slack_mb = options.slack_percent = slack_mb;
    return options;
}

/// Leaves `count` free blocks of 4 MiB between live ones of 3 MiB, and nothing in the caches.
std::vector<Block*> make_holes(PoolFixture& f, int count) {
    std::vector<Block*> holes;
    std::vector<Block*> kept;
    for (int i = 0; i < count; ++i) {
        holes.push_back(f.alloc(4 * kMiB));
        kept.push_back(f.alloc(3 * kMiB));
        REQUIRE(kept.back() != nullptr);
    }
    for (Block* hole : holes)
        REQUIRE(f.free(hole).status == PoolStatus::done);
    return kept;
}

void free_all(PoolFixture& f, std::vector<Block*>& blocks) {
    for (Block* block : blocks)
        CHECK(f.free(block).status == PoolStatus::done);
    blocks.clear();
}

} // namespace

TEST_CASE("DevicePool expand: one range grows at its end, in whole granules") {
    PoolFixture f(OrderLevel::ordered, growable());
    Block* const first = f.alloc(3 * kMiB);
    CHECK(f.device.held() == 4 * kMiB);
    Block* const second = f.alloc(3 * kMiB); // the free end counts
    CHECK(second->address == first->address + 3 * kMiB);
    CHECK(f.device.held() == 6 * kMiB);
    CHECK(second->segment == first->segment);
    CHECK(second->segment->kind == SegmentKind::range);
    Block* const small = f.alloc(1000); // from a slab
    CHECK(f.device.held() == 8 * kMiB);
    CHECK(f.alloc(1000)->address == small->address + 1024);
    CHECK(f.device.allocations == 0);
    CHECK(f.pool->statistics().segments == 1);
    CHECK(f.first_complaint() == "");
}

TEST_CASE("DevicePool expand: free pieces are joined, and the mapping is kept") {
    PoolFixture f(OrderLevel::ordered, growable());
    std::vector<Block*> kept = make_holes(f, 6);
    const std::uint64_t held = f.device.held();
    Block* const joined = f.alloc(8 * kMiB);
    REQUIRE(joined != nullptr);
    CHECK(joined->segment->kind == SegmentKind::stitch);
    CHECK(f.device.held() == held);
    CHECK(f.map->find_containing(joined->address + 8 * kMiB - 1) == joined);
    f.free(joined);
    Block* const again = f.alloc(8 * kMiB);
    CHECK(again == joined);
    CHECK(f.device.aliased == 1);
    // While it is live its pieces are nobody else's: the oracle knows memory, not addresses.
    std::vector<Block*> others;
    for (int i = 0; i < 4; ++i)
        others.push_back(f.alloc(2 * kMiB));
    CHECK(f.first_complaint() == "");
    free_all(f, others);
    f.free(again);
    free_all(f, kept);
    CHECK(f.pool->statistics().fragmentation_misses == 1);
    CHECK(f.wind_up() == 0);
    CHECK(f.device.aliases() == 0);
    CHECK(f.first_complaint() == "");
}

TEST_CASE("DevicePool expand: a full device serves what its free pieces can hold") {
    PoolFixture f(OrderLevel::fenced, growable(), 64 * kMiB);
    std::vector<Block*> kept;
    std::vector<Block*> holes;
    while (Block* const block = f.alloc(4 * kMiB))
        (holes.size() <= kept.size() ? holes : kept).push_back(block);
    CHECK(f.status == PoolStatus::out_of_memory);
    for (Block* hole : holes) {
        f.use(hole);
        f.free(hole);
    }
    Block* const joined = f.alloc(holes.size() * 4 * kMiB);
    REQUIRE(joined != nullptr);
    CHECK(joined->segment->kind == SegmentKind::stitch);
    CHECK(f.first_complaint() == "");
    f.free(joined);
    free_all(f, kept);
    CHECK(f.wind_up() == 0);
}

TEST_CASE("DevicePool expand: large blocks leave the caches once a program fragments") {
    PoolFixture f(OrderLevel::ordered, growable());
    std::vector<Block*> kept = make_holes(f, 40);
    for (std::uint64_t i = 0; i < 10; ++i)
        kept.push_back(f.alloc((5 + i) * kMiB));
    CHECK(f.pool->statistics().fragmentation_misses >= 8);
    const std::uint64_t hits = f.pool->statistics().tree_hits;
    f.free(f.alloc(3 * kMiB));
    f.free(f.alloc(3 * kMiB));
    CHECK(f.pool->statistics().tree_hits == hits + 2);
    f.free(f.alloc(64 * kKiB));
    f.free(f.alloc(64 * kKiB));
    CHECK(f.pool->statistics().tree_hits <= hits + 3);
    free_all(f, kept);
    CHECK(f.wind_up() == 0);
    CHECK(f.first_complaint() == "");
}

TEST_CASE("DevicePool expand: a stitch ends for another one only when its users have finished") {
    PoolFixture f(OrderLevel::ordered, growable(), 4 * kGiB);
    std::vector<Block*> kept = make_holes(f, 120);
    for (std::uint64_t i = 0; i < 100; ++i) { // each larger than all before
        Block* const block = f.alloc(5 * kMiB + i * 2 * kMiB);
        REQUIRE(block != nullptr);
        f.use(block);
        f.free(block);
        f.device.advance(i % 7 == 0 ? 20 : 0);
    }
    CHECK(f.pool->statistics().stitches_made > Stitches::kSlots);
    CHECK(f.pool->statistics().stitches_ended != 0);
    CHECK(f.device.aliases() <= Stitches::kSlots);
    free_all(f, kept);
    CHECK(f.first_complaint() == "");
    CHECK(f.wind_up() == 0);
}

TEST_CASE("DevicePool expand: trimming waits for the users of what it gives back") {
    const OrderLevel level =
        GENERATE(OrderLevel::ordered, OrderLevel::fenced, OrderLevel::finished, OrderLevel::wait);
    PoolFixture f(level, growable());
    std::vector<Block*> kept = make_holes(f, 3);
    Block* const block = f.alloc(30 * kMiB);
    f.use(block, 1);
    f.free(block);
    f.pool->trim();
    CHECK(f.first_complaint() == "");
    free_all(f, kept);
    CHECK(f.wind_up() == 0);
    Block* const again = f.alloc(5 * kMiB); // where memory was before
    REQUIRE(again != nullptr);
    CHECK(f.map->find(again->address) == again);
    f.free(again);
    CHECK(f.wind_up() == 0);
}

TEST_CASE("DevicePool expand: without growable memory there are segments") {
    SECTION("no addresses") {
        PoolFixture f(OrderLevel::ordered, growable());
        f.device.growable = false;
        Block* const block = f.alloc(3 * kMiB);
        REQUIRE(block != nullptr);
        CHECK(block->segment->kind == SegmentKind::plain);
        f.free(block);
        CHECK(f.wind_up() == 0);
    }
    SECTION("no memory for them later on") {
        PoolFixture f(OrderLevel::ordered, growable());
        Block* const first = f.alloc(4 * kMiB);
        f.device.fail_at = f.device.calls + 1;
        Block* const second = f.alloc(4 * kMiB + 512);
        REQUIRE(second != nullptr);
        CHECK(second->segment->kind == SegmentKind::plain);
        f.free(first);
        CHECK(f.alloc(3 * kMiB)->segment->kind == SegmentKind::range); // what is there is used
        CHECK(f.first_complaint() == "");
    }
}

TEST_CASE("DevicePool expand: from an export on segments serve, and growable memory goes") {
    PoolFixture f(OrderLevel::fenced, growable());
    Block* const live = f.alloc(5 * kMiB);
    Block* const cached = f.alloc(7 * kMiB);
    Block* const small = f.alloc(512);
    f.free(cached);
    f.pool->serve_from_segments();
    for (const std::uint64_t bytes : {7 * kMiB, 5 * kMiB, std::uint64_t{512}, 3 * kMiB}) {
        Block* const block = f.alloc(bytes);
        REQUIRE(block != nullptr);
        CHECK(block->segment->kind == SegmentKind::plain);
    }
    f.free(live);
    f.free(small);
    Block* const after = f.alloc(5 * kMiB);
    CHECK(after->segment->kind == SegmentKind::plain);
    f.pool->release_all();
    bool any = false;
    f.pool->visit_growable([&](const PieceRun&, bool) { any = true; });
    CHECK_FALSE(any);
    CHECK(f.first_complaint() == "");
}

TEST_CASE("DevicePool expand: all growable memory can be visited") {
    PoolFixture f(OrderLevel::ordered, growable());
    std::vector<Block*> kept = make_holes(f, 4);
    Block* const joined = f.alloc(8 * kMiB);
    std::uint64_t mapped = 0;
    std::uint64_t aliases = 0;
    f.pool->visit_growable(
        [&](const PieceRun& run, bool alias) { (alias ? aliases : mapped) += run.bytes; });
    CHECK(mapped == f.device.held());
    CHECK(aliases == joined->segment->size);
    f.pool->kill();
    CHECK(f.map->find(joined->address) == nullptr);
    CHECK(f.map->find(kept[0]->address) == nullptr);
    f.pool->revive();
    CHECK(f.map->find(joined->address) == joined);
    CHECK(f.map->find(kept[0]->address) == kept[0]);
    const DeviceAddress somewhere = kept[0]->address;
    f.pool->bury();
    CHECK(f.map->segment_of(somewhere) == nullptr);
    CHECK(f.ledger.segment_bytes() == 0);
    CHECK(f.ledger.blocks() == 0);
}

TEST_CASE("DevicePool expand: whichever call fails, nothing is lost and nothing is shared") {
    const OrderLevel level = GENERATE(OrderLevel::ordered, OrderLevel::fenced);
    const bool soft = GENERATE(false, true);
    std::uint64_t failed_calls = 0;
    std::uint64_t stitched = 0;
    for (std::uint64_t n = 1;; ++n) {
        CAPTURE(n, static_cast<int>(level), soft);
        PoolFixture f(level, growable(), 128 * kMiB);
        f.device.fail_at = n;
        f.device.order_failure_status = soft ? OrderStatus::refused : OrderStatus::failed;
        f.device.source_failure = soft ? SourceStatus::out_of_memory : SourceStatus::failed;
        std::vector<Block*> kept;
        for (std::uint64_t round = 0; round < 3; ++round) {
            std::vector<Block*> holes;
            for (std::uint64_t i = 0; i < 8; ++i) {
                if (Block* const block = f.alloc(3 * kMiB)) kept.push_back(block);
                if (Block* const block = f.alloc((4 + round) * kMiB)) holes.push_back(block);
            }
            for (Block* hole : holes) {
                f.use(hole);
                if (f.free(hole).status != PoolStatus::done) kept.push_back(hole);
            }
            for (std::uint64_t i = 0; i < 2; ++i) {
                if (Block* const block = f.alloc((12 + 3 * i) * kMiB)) kept.push_back(block);
            }
            while (kept.size() > 6) {
                if (f.free(kept.back()).status == PoolStatus::done) kept.pop_back();
            }
            if (round == 1) f.pool->trim();
        }
        const bool happened = f.device.calls >= n;
        f.device.fail_at = 0;
        stitched += f.pool->statistics().stitches_made;
        CHECK(f.pool->statistics().reserved_bytes == f.device.held());
        free_all(f, kept);
        CHECK(f.wind_up() == 0);
        CHECK(f.device.aliases() == 0);
        CHECK(f.first_complaint() == "");
        if (!happened) break;
        ++failed_calls;
    }
    CHECK(failed_calls > 20);
    CHECK(stitched > failed_calls);
}
