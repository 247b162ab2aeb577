#include "core/pool/best_fit_tree.h"
#include "core/pool/block_arena.h"

#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

using namespace cachealloc;

TEST_CASE("BestFitTree: smallest fit, then lowest address") {
    const auto arena = std::make_unique<BlockArena>();
    BestFitTree tree;
    CHECK(tree.empty());
    CHECK(tree.best_fit(512) == nullptr);
    CHECK(tree.largest() == nullptr);
    const auto add = [&](DeviceAddress address, std::uint64_t size) {
        Block* const block = arena->make();
        block->address = address;
        block->size = size;
        tree.insert(block);
        return block;
    };
    Block* const big = add(0x1000, 8192);
    Block* const high = add(0x9000, 1024);
    Block* const low = add(0x5000, 1024);
    Block* const small = add(0x7000, 512);
    CHECK(tree.best_fit(1) == small);
    CHECK(tree.best_fit(512) == small);
    CHECK(tree.best_fit(513) == low);
    CHECK(tree.best_fit(1025) == big);
    CHECK(tree.best_fit(8193) == nullptr);
    CHECK(tree.largest() == big);
    tree.erase(low);
    CHECK(tree.best_fit(1024) == high);
    tree.erase(big);
    CHECK(tree.largest() == high);
    tree.erase(high);
    tree.erase(small);
    CHECK(tree.empty());
}

TEST_CASE("BestFitTree: random operations against an ordered set") {
    const auto seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto arena = std::make_unique<BlockArena>();
    BestFitTree tree;
    using Key = std::pair<std::uint64_t, DeviceAddress>;
    std::set<Key> model;
    std::vector<Block*> inside;
    std::set<DeviceAddress> used;
    for (int step = 0; step < 60000; ++step) {
        const bool growing = (step / 5000) % 2 == 0;
        if (inside.empty() || random() % 10 < (growing ? 7U : 3U)) {
            DeviceAddress address = 0;
            do {
                address = random() % 100000 * kBlockAlignment;
            } while (!used.insert(address).second);
            Block* const block = arena->make();
            block->address = address;
            block->size = (1 + random() % 64) * kBlockAlignment;
            tree.insert(block);
            model.emplace(block->size, block->address);
            inside.push_back(block);
        } else {
            const std::size_t at = random() % inside.size();
            Block* const block = inside[at];
            inside[at] = inside.back();
            inside.pop_back();
            tree.erase(block);
            model.erase({block->size, block->address});
            used.erase(block->address);
            REQUIRE(block->left == nullptr);
            REQUIRE(block->right == nullptr);
            arena->recycle(block);
        }
        const std::uint64_t wanted = random() % (66 * kBlockAlignment);
        const auto expected = model.lower_bound({wanted, 0});
        const Block* const found = tree.best_fit(wanted);
        REQUIRE((found == nullptr) == (expected == model.end()));
        if (found != nullptr) REQUIRE(Key(found->size, found->address) == *expected);
        const Block* const largest = tree.largest();
        REQUIRE((largest == nullptr) == model.empty());
        if (largest != nullptr) REQUIRE(largest->size == model.rbegin()->first);
        REQUIRE(tree.empty() == model.empty());
    }
}

TEST_CASE("BestFitTree: sorted insertion of many blocks stays shallow") {
    const auto arena = std::make_unique<BlockArena>();
    BestFitTree tree;
    std::vector<Block*> blocks;
    for (std::uint64_t i = 1; i <= 20000; ++i) {
        Block* const block = arena->make();
        block->address = i * kBlockAlignment;
        block->size = i * kBlockAlignment;
        tree.insert(block);
        blocks.push_back(block);
    }
    const auto root = [&] {
        std::set<const Block*> children;
        for (const Block* block : blocks) {
            children.insert(block->left);
            children.insert(block->right);
        }
        for (const Block* block : blocks) {
            if (children.count(block) == 0) return block;
        }
        return static_cast<const Block*>(nullptr);
    }();
    REQUIRE(root != nullptr);
    std::size_t depth = 0;
    std::vector<const Block*> level{root};
    while (!level.empty()) {
        ++depth;
        std::vector<const Block*> next;
        for (const Block* block : level) {
            if (block->left != nullptr) next.push_back(block->left);
            if (block->right != nullptr) next.push_back(block->right);
        }
        level.swap(next);
    }
    CHECK(depth < 60); // 2^14 nodes: a balanced tree has 15 levels, a list 20,000
}
