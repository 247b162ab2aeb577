#include "core/record/unwind/frame_nodes.h"

#include <catch2/catch.hpp>

#include <thread>
#include <vector>

using namespace cachealloc;

TEST_CASE("An address has one node for ever", "[unwind]") {
    FrameNodes nodes;
    CHECK(nodes.find(0x1234) == nullptr);
    FrameNode* const node = nodes.find_or_add(0x1234);
    REQUIRE(node != nullptr);
    CHECK(node->pc == 0x1234);
    CHECK(node->rule == 0);
    CHECK(nodes.find(0x1234) == node);
    CHECK(nodes.find_or_add(0x1234) == node);
    CHECK(nodes.find_or_add(0) == nullptr);
}

TEST_CASE("Threads that add the same addresses get the same nodes", "[unwind]") {
    FrameNodes nodes;
    constexpr std::uint64_t kAddresses = 2000;
    std::vector<FrameNode*> found[3];
    std::vector<std::thread> threads;
    for (std::vector<FrameNode*>& mine : found) {
        threads.emplace_back([&nodes, &mine] {
            for (std::uint64_t i = 1; i <= kAddresses; ++i)
                mine.push_back(nodes.find_or_add(i * 16));
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(found[0] == found[1]);
    CHECK(found[0] == found[2]);
    for (std::uint64_t i = 1; i <= kAddresses; ++i)
        CHECK(nodes.find(i * 16) == found[0][i - 1]);
}

TEST_CASE("A full table adds nothing more, and finds what it has", "[unwind]") {
    FrameNodes nodes;
    std::uint64_t added = 0;
    while (nodes.find_or_add(added + 1) != nullptr)
        ++added;
    CHECK(added == 49152);
    CHECK(nodes.find(added) != nullptr);
    CHECK(nodes.find(added + 1) == nullptr);
    CHECK(nodes.find_or_add(1) != nullptr);
}

TEST_CASE("The nodes that followed are found again", "[unwind]") {
    FrameNodes nodes;
    FrameNode& node = *nodes.find_or_add(0x1000);
    for (std::uint64_t i = 1; i <= FrameNode::kNext; ++i) {
        const std::uint64_t pc = 0x2000 + (i << 32); // alike in their lower halves
        CHECK(FrameNodes::after(node, pc) == nullptr);
        FrameNodes::link(node, *nodes.find_or_add(pc));
    }
    for (std::uint64_t i = 1; i <= FrameNode::kNext; ++i)
        CHECK(FrameNodes::after(node, 0x2000 + (i << 32)) == nodes.find(0x2000 + (i << 32)));
    // One more takes the place of another.
    FrameNodes::link(node, *nodes.find_or_add(0x5000));
    CHECK(FrameNodes::after(node, 0x5000) == nodes.find(0x5000));
    CHECK(FrameNodes::after(node, 0) == nullptr);
}

TEST_CASE("Forgotten rules are unknown", "[unwind]") {
    FrameNodes nodes;
    FrameNode& node = *nodes.find_or_add(0x1000);
    node.rule = 77;
    nodes.forget_rules();
    CHECK(node.rule == 0);
    CHECK(nodes.find(0x1000) == &node);
}
