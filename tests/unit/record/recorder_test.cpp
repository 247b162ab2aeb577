#include "core/record/recorder.h"

#include "tests/unit/record/recording.h"

#include <catch2/catch.hpp>

#include <string>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::AddressSpace;
using trace::CallName;
using trace::EventKind;
using trace::MemoryType;

TEST_CASE("recorder: what was allocated and not freed is live, with its stack", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    RecorderSettings settings;
    settings.stacks = &stacks;
    const std::string path = folder / "trace";
    REQUIRE(record_in_child(path, settings, [&](Recorder& recorder) {
                for (std::uint64_t i = 1; i <= 3; ++i) {
                    const RecordedCall call(&recorder, CallName::mem_alloc);
                    recorder.allocated(memory(i << 20, i * 1000));
                }
                const RecordedCall call(&recorder, CallName::mem_free);
                recorder.freed(AddressSpace::device, memory(2 << 20, 0));
                return 0;
            }) == 0);

    const View view(path);
    REQUIRE(view.good());
    CHECK(view.state() == trace::RunState::recording);
    const auto events = view.events();
    REQUIRE(events.size() == 4);
    CHECK(events[0].kind == EventKind::alloc);
    CHECK(events[0].call == CallName::mem_alloc);
    CHECK(events[0].thread == 1);
    REQUIRE(view.frames(events[0].stack).size() == 3);
    CHECK(view.frames(events[0].stack)[2] == 0x3000);
    CHECK(events[3].kind == EventKind::free);
    CHECK(events[3].call == CallName::mem_free);
    CHECK(events[3].size == 2000);
    CHECK(events[3].memory == MemoryType::pooled);
    CHECK(events[3].stack == events[1].stack);
    CHECK(events[3].free_stack == 0);
    CHECK(view.counters().stacks_dropped == 0);

    const auto live = view.live();
    REQUIRE(live.size() == 2);
    CHECK(live[0].address == 1 << 20);
    CHECK(live[1].size == 3000);
    CHECK(live[1].sequence == events[2].sequence);
    const auto& slot =
        view.elements<trace::StackSlot>(trace::SectionType::stacks)[events[0].stack - 1];
    CHECK(slot.allocations == 3);
    CHECK(slot.bytes == 6000);
}
