// The changes that memory_viz is told, one by one.
#include "tools/exports/viewer_memory.h"

#include <catch2/catch.hpp>

#include <sstream>
#include <string>
#include <vector>

using namespace cachealloc;
using namespace cachealloc::tools;
using trace::EventKind;
using trace::MemoryType;

namespace {

constexpr std::uint64_t kSegment = 0x7f0000000000;
constexpr const char* kNames[] = {"alloc",         "free_requested", "free_completed",
                                  "segment_alloc", "segment_free",   "segment_map",
                                  "segment_unmap"};

/// Notes changes as "alloc +200 100", addresses from kSegment on.
class Viewer : public ViewerSink {
  public:
    Viewer() : memory(0, *this) {}

    void on_change(ViewerAction action, std::uint64_t address, const ViewerItem& item,
                   std::uint32_t stack, const Event& /*cause*/) override {
        std::ostringstream text;
        text << kNames[static_cast<int>(action)] << " +" << std::hex << address - kSegment << " "
             << item.size;
        changes.push_back(text.str());
        last_stack = stack;
    }

    Viewer& see(EventKind kind, std::uint64_t offset, std::uint64_t size,
                MemoryType type = MemoryType::pooled, std::uint8_t flags = 0) {
        Event event;
        event.kind = kind;
        event.address = kSegment + offset;
        event.size = size;
        event.memory = type;
        event.flags = flags;
        event.stack = 5;
        memory.apply(event);
        return *this;
    }
    Viewer& free(std::uint64_t offset, MemoryType type = MemoryType::pooled, bool settled = true) {
        return see(EventKind::free, offset, 0, type,
                   static_cast<std::uint8_t>(settled ? trace::kSettled : 0));
    }

    std::vector<std::string> changes;
    std::uint32_t last_stack = 0;
    ViewerMemory memory;
};

using Changes = std::vector<std::string>;

} // namespace

TEST_CASE("Pool memory lies in its segments", "[exports]") {
    Viewer viewer;
    viewer.see(EventKind::segment_alloc, 0, 0x1000).see(EventKind::alloc, 0x200, 0x100);
    viewer.free(0x200, MemoryType::pooled, false).see(EventKind::free_completed, 0x200, 0x100);
    viewer.see(EventKind::alloc, 0, 0x80).free(0);
    viewer.see(EventKind::segment_free, 0, 0x1000);
    CHECK(viewer.changes == Changes{"segment_alloc +0 1000", "alloc +200 100",
                                    "free_requested +200 100", "free_completed +200 100",
                                    "alloc +0 80", "free_requested +0 80", "free_completed +0 80",
                                    "segment_free +0 1000"});
    CHECK(viewer.memory.segments().empty());
    CHECK(viewer.memory.left_out() == 0);
}

TEST_CASE("Other memory has a segment for each block", "[exports]") {
    Viewer viewer;
    viewer.see(EventKind::alloc, 0x5000, 0x300, MemoryType::managed);
    CHECK(viewer.memory.segments().at(kSegment + 0x5000).single);
    viewer.free(0x5000, MemoryType::managed, false);
    CHECK(viewer.changes == Changes{"segment_alloc +5000 300", "alloc +5000 300",
                                    "free_requested +5000 300", "free_completed +5000 300",
                                    "segment_free +5000 300"});
    viewer.changes.clear();
    viewer.see(EventKind::alloc, 0, 0x300, MemoryType::pinned);
    viewer.see(EventKind::alloc, 0, 0x300, MemoryType::mapping);
    CHECK(viewer.changes.empty());
}

TEST_CASE("Memory without an address gets one that no other has", "[exports]") {
    Viewer viewer;
    viewer.see(EventKind::segment_alloc, 0, 0x1000).see(EventKind::alloc, 0, 0x1000);
    viewer.see(EventKind::alloc, 0, 0x40, MemoryType::array);
    viewer.see(EventKind::alloc, 0, 0x40, MemoryType::physical);
    REQUIRE(viewer.memory.blocks().size() == 3);
    for (const auto& [address, block] : viewer.memory.blocks()) {
        const bool handle = block.memory != MemoryType::pooled;
        CHECK(handle == (address >= std::uint64_t{1} << 52));
        CHECK(address + block.size < std::uint64_t{1} << 53);
    }
    viewer.free(0, MemoryType::array);
    CHECK(viewer.memory.blocks().size() == 2);
    viewer.see(EventKind::alloc, 0, 0x40, MemoryType::physical); // its free was lost
    CHECK(viewer.memory.blocks().size() == 2);
    viewer.free(0, MemoryType::physical).free(0);
    CHECK(viewer.memory.blocks().empty());
}

TEST_CASE("What the recording lost is made up", "[exports]") {
    Viewer viewer;
    viewer.see(EventKind::segment_alloc, 0, 0x1000);
    viewer.see(EventKind::alloc, 0, 0x100).free(0, MemoryType::pooled, false);
    viewer.see(EventKind::alloc, 0x200, 0x100);
    viewer.changes.clear();
    SECTION("the ends of blocks whose place is handed out again") {
        viewer.see(EventKind::alloc, 0x80, 0x200);
        CHECK(viewer.changes == Changes{"free_completed +0 100", "free_requested +200 100",
                                        "free_completed +200 100", "alloc +80 200"});
    }
    SECTION("the ends of what is in a segment that goes") {
        viewer.see(EventKind::segment_free, 0, 0x1000);
        CHECK(viewer.changes == Changes{"free_completed +0 100", "free_requested +200 100",
                                        "free_completed +200 100", "segment_free +0 1000"});
    }
    SECTION("the ends of segments whose place is another's") {
        viewer.see(EventKind::segment_alloc, 0x800, 0x1000);
        CHECK(viewer.changes.back() == "segment_alloc +800 1000");
        CHECK(viewer.changes.size() == 5);
        CHECK(viewer.memory.blocks().empty());
    }
    SECTION("a segment for a block that has none") {
        viewer.see(EventKind::alloc, 0x9000, 0x100);
        CHECK(viewer.changes == Changes{"segment_alloc +9000 100", "alloc +9000 100"});
    }
    SECTION("but not what cannot be") {
        viewer.see(EventKind::alloc, 0xf80, 0x100);                      // half outside
        viewer.see(EventKind::alloc, 0x400, 0x100, MemoryType::managed); // in the pool's segment
        viewer.see(EventKind::alloc, 0x400, 0);
        viewer.see(EventKind::segment_alloc, ~std::uint64_t{0} - kSegment, 0x1000);
        viewer.see(EventKind::alloc, (std::uint64_t{1} << 52) - kSegment - 1, 0x1000);
        CHECK(viewer.changes.empty());
        CHECK(viewer.memory.left_out() == 5);
        viewer.free(0x200).free(0x200).free(0x300);
        CHECK(viewer.changes.size() == 2);
    }
    SECTION("what is gone at the end") {
        viewer.memory.reconcile(State(), Event());
        CHECK(viewer.memory.segments().empty());
        CHECK(viewer.changes.back() == "segment_free +0 1000");
    }
}

TEST_CASE("Parts of what grows are one segment", "[exports]") {
    Viewer viewer;
    viewer.see(EventKind::segment_map, 0x2000, 0x1000).see(EventKind::segment_map, 0, 0x1000);
    CHECK(viewer.memory.segments().size() == 2);
    viewer.see(EventKind::segment_map, 0x1000, 0x1000);
    REQUIRE(viewer.memory.segments().size() == 1);
    CHECK(viewer.memory.segments().at(kSegment).size == 0x3000);
    viewer.see(EventKind::alloc, 0xf00, 0x200);
    viewer.changes.clear();
    viewer.see(EventKind::segment_map, 0x800, 0x1000); // is mapped
    CHECK(viewer.changes.empty());
    viewer.see(EventKind::segment_unmap, 0x1000, 0x1000);
    CHECK(viewer.changes == Changes{"free_requested +f00 200", "free_completed +f00 200",
                                    "segment_unmap +1000 1000"});
    CHECK(viewer.memory.segments().size() == 2);
    viewer.see(EventKind::segment_unmap, 0x1800, 0x1000); // half of it is not mapped
    viewer.see(EventKind::segment_free, 0, 0x1000);       // does not grow
    CHECK(viewer.memory.segments().size() == 2);
    viewer.memory.reconcile(State(), Event());
    CHECK(viewer.memory.segments().empty());
}

TEST_CASE("A free without a stack of its own has the allocation's", "[exports]") {
    Viewer viewer;
    viewer.see(EventKind::alloc, 0, 0x100, MemoryType::device);
    Event event;
    event.kind = EventKind::free;
    event.address = kSegment;
    event.memory = MemoryType::device;
    SECTION("none") {
        viewer.memory.apply(event);
        CHECK(viewer.last_stack == 5);
    }
    SECTION("one") {
        event.free_stack = 9;
        viewer.memory.apply(event);
        CHECK(viewer.last_stack == 9);
    }
}
