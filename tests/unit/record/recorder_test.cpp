#include "core/record/recorder.h"

#include "tests/unit/record/recording.h"

#include <catch2/catch.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::AddressSpace;
using trace::CallName;
using trace::EventKind;
using trace::MemoryType;
using trace::SectionType;

namespace {

void allocate(Recorder& recorder, std::uint64_t address, std::uint64_t size,
              MemoryType type = MemoryType::pooled) {
    const RecordedCall call(&recorder, CallName::mem_alloc);
    recorder.allocated(memory(address, size, type));
}

void give_back(Recorder& recorder, std::uint64_t address,
               AddressSpace space = AddressSpace::device) {
    const RecordedCall call(&recorder, CallName::mem_free);
    recorder.freed(space, memory(address, 0, MemoryType::device));
}

/// A recording of `work(recorder)` with these stacks.
template <typename Work>
void record(const std::string& path, FakeStacks& stacks, Work work, bool free_stacks = false) {
    RecorderSettings settings;
    settings.stacks = &stacks;
    settings.free_stacks = free_stacks;
    REQUIRE(record_in_child(path, settings, [&](Recorder& recorder) {
                work(recorder);
                return 0;
            }) == 0);
}

const trace::StackSlot& slot(const View& view, std::uint32_t stack) {
    return view.elements<trace::StackSlot>(SectionType::stacks)[stack - 1];
}

} // namespace

TEST_CASE("recorder: what was allocated and not freed is live, with its stack", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [](Recorder& recorder) {
        for (std::uint64_t i = 1; i <= 3; ++i)
            allocate(recorder, i << 20, i * 100'000);
        give_back(recorder, 2 << 20);
    });
    const View view(folder / "trace");
    CHECK(view.state() == trace::RunState::recording);
    const auto events = view.events();
    REQUIRE(events.size() == 4);
    CHECK(events[0].kind == EventKind::alloc);
    CHECK(events[0].call == CallName::mem_alloc);
    CHECK(events[0].thread == 1);
    const auto frames = view.frames(events[0].stack);
    CHECK(std::vector<trace::Frame>(frames.begin(), frames.end()) == stacks.frames);
    CHECK(events[3].kind == EventKind::free);
    CHECK(events[3].call == CallName::mem_free);
    CHECK(events[3].size == 200'000);
    CHECK(events[3].memory == MemoryType::pooled);
    CHECK(events[3].stack == events[1].stack);
    CHECK(events[3].free_stack == 0);

    const auto live = view.live();
    REQUIRE(live.size() == 2);
    CHECK(live[0].address == 1 << 20);
    CHECK(live[1].size == 300'000);
    CHECK(live[1].sequence == events[2].sequence);
    CHECK(slot(view, events[0].stack).allocations == 3);
    CHECK(slot(view, events[0].stack).bytes == 600'000);
    CHECK(view.device(0).live == 400'000);
    CHECK(view.device(0).live_pooled == 400'000);
    CHECK(view.device(0).live_peak == 600'000);
}

TEST_CASE("recorder: a free of what it does not know is recorded and counted", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [](Recorder& recorder) {
        allocate(recorder, 4096, 1 << 20);
        recorder.freed(AddressSpace::device, memory(8192, 1 << 20));
        give_back(recorder, 4096, AddressSpace::host); // there is none of that address
    });
    const View view(folder / "trace");
    const auto events = view.events();
    REQUIRE(events.size() == 3);
    CHECK(events[1].kind == EventKind::free);
    CHECK(events[1].size == 1 << 20);
    CHECK(events[1].stack == 0);
    CHECK(view.counters().unknown_frees == 2);
    CHECK(view.device(0).live == 1 << 20);
    CHECK(view.live().size() == 1);
}

TEST_CASE("recorder: a free that was refused is as if it had not been", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        allocate(recorder, 4096, 1 << 20);
        const RecordedCall call(&recorder, CallName::mem_free);
        MemoryEvent event;
        if (!recorder.find(AddressSpace::device, 4096, event)) std::abort();
        recorder.freed(AddressSpace::device, event);
        recorder.not_freed(event);
    });
    const View view(folder / "trace");
    const auto events = view.events();
    REQUIRE(events.size() == 3);
    CHECK(events[2].kind == EventKind::alloc);
    CHECK(events[2].call == CallName::mem_alloc);
    CHECK(events[2].stack == events[0].stack);
    CHECK(events[2].size == 1 << 20);
    const auto live = view.live();
    REQUIRE(live.size() == 1);
    CHECK(live[0].sequence == events[2].sequence);
    CHECK(view.device(0).live == 1 << 20);
    CHECK(slot(view, events[0].stack).allocations == 1);
}

TEST_CASE("recorder: memory at an address that is still live takes its place", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        allocate(recorder, 4096, 1 << 20);
        allocate(recorder, 4096, 2 << 20); // the first one ended without our seeing it
    });
    const View view(folder / "trace");
    CHECK(view.live().size() == 1);
    CHECK(view.device(0).live == 2 << 20);
}

TEST_CASE("recorder: find gives what was allocated", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        MemoryEvent event = memory(4096, 100, MemoryType::pinned);
        event.device = 3;
        event.pool = 7;
        event.stream = 9;
        event.extra = 412;
        event.flags = trace::kPassed;
        recorder.allocated(event);
        MemoryEvent found;
        const bool there = recorder.find(AddressSpace::host, 4096, found);
        if (!there || std::memcmp(&found, &event, sizeof event) != 0) std::abort();
        if (recorder.find(AddressSpace::device, 4096, found)) std::abort();
    });
    CHECK(View(folder / "trace").device(3).host == 0); // 100 bytes are held back
    CHECK(View(folder / "trace").live().size() == 1);
}

TEST_CASE("recorder: segments are live until they end, and count as reserved", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        const RecordedCall call(&recorder, CallName::mem_alloc);
        recorder.note(EventKind::segment_alloc, memory(2 << 20, 2 << 20));
        recorder.note(EventKind::segment_alloc, memory(4 << 20, 2 << 20));
        recorder.allocated(memory(2 << 20, 100'000));
        recorder.note(EventKind::segment_free, memory(4 << 20, 2 << 20));
        recorder.note(EventKind::free_completed, memory(8 << 20, 512));
    });
    const View view(folder / "trace");
    CHECK(view.events().size() == 5);
    const auto live = view.live();
    REQUIRE(live.size() == 2);
    CHECK(live[0].address == live[1].address);
    CHECK(live[0].kind != live[1].kind);
    CHECK(view.device(0).reserved == 2 << 20);
    CHECK(view.device(0).reserved_peak == 4 << 20);
    CHECK(view.device(0).live == 100'000);
}

TEST_CASE("recorder: with a context all that was in it ends", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        for (std::uint64_t i = 0; i < 500; ++i) {
            MemoryEvent event = memory((i + 1) << 20, 1 << 20);
            event.pool = static_cast<std::uint8_t>(i % 2);
            recorder.note(EventKind::segment_alloc, event);
            recorder.allocated(event);
        }
        const RecordedCall call(&recorder, CallName::context_end);
        std::uint8_t pool = 1;
        recorder.end_all(
            [](const trace::EventRecord& record, void* context) {
                return record.pool == *static_cast<std::uint8_t*>(context);
            },
            &pool);
    });
    const View view(folder / "trace");
    const auto events = view.events();
    const auto count = [&](EventKind kind) {
        return std::ranges::count_if(events, [&](const Event& event) {
            return event.kind == kind && event.pool == 1 && event.call == CallName::context_end;
        });
    };
    CHECK(events.size() == 1500);
    CHECK(count(EventKind::free) == 250);
    CHECK(count(EventKind::segment_free) == 250);
    CHECK(view.live().size() == 500);
    CHECK(view.device(0).live == 250 << 20);
    CHECK(view.device(0).reserved == 250 << 20);
}

TEST_CASE("recorder: stacks of frees only where they are asked for", "[record]") {
    const bool asked = GENERATE(false, true);
    const Folder folder;
    FakeStacks stacks;
    record(
        folder / "trace", stacks,
        [&](Recorder& recorder) {
            allocate(recorder, 4096, 1);
            stacks.frames = {0x77};
            give_back(recorder, 4096);
        },
        asked);
    const View view(folder / "trace");
    const auto events = view.events();
    REQUIRE(events.size() == 2);
    CHECK(view.frames(events[1].stack).size() == 3);
    CHECK((events[1].free_stack != 0) == asked);
    if (asked) CHECK(view.frames(events[1].free_stack)[0] == 0x77);
}

TEST_CASE("recorder: a stack is cut at the depth, and the event says so", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    stacks.frames.assign(300, 0x10);
    RecorderSettings settings;
    settings.stacks = &stacks;
    settings.stack_depth = 8;
    REQUIRE(record_in_child(folder / "trace", settings, [&](Recorder& recorder) {
                allocate(recorder, 4096, 1);
                give_back(recorder, 4096);
                stacks.frames.resize(8);
                allocate(recorder, 4096, 1);
                return 0;
            }) == 0);
    const View view(folder / "trace");
    CHECK(view.header().stack_depth == 8);
    const auto events = view.events();
    REQUIRE(events.size() == 3);
    CHECK(view.frames(events[0].stack).size() == 8);
    CHECK(events[0].flags == trace::kCutStack);
    CHECK(events[1].flags == trace::kCutStack); // it is the allocation's
    CHECK(events[2].flags == 0);
    CHECK(events[2].stack != events[0].stack);
}

TEST_CASE("recorder: an event without a stack is recorded all the same", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        stacks.frames.clear();
        allocate(recorder, 4096, 1);
        recorder.allocated(memory(8192, 1)); // in no call
        const RecordedCall call(&recorder, CallName::mem_alloc, false);
        recorder.allocated(memory(12288, 1));
    });
    const View view(folder / "trace");
    CHECK(view.events().size() == 3);
    for (const Event& event : view.events())
        CHECK(event.stack == 0);
    CHECK(view.events()[1].call == CallName::none);
    CHECK(view.counters().stacks_failed == 1);
    CHECK(view.counters().stacks_dropped == 0);
}

TEST_CASE("recorder: a call within a call, and the outer one afterwards", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        const RecordedCall outer(&recorder, CallName::mem_alloc_pitch);
        {
            stacks.frames = {0x55};
            const RecordedCall inner(&recorder, CallName::mem_alloc);
            recorder.allocated(memory(4096, 1));
        }
        recorder.allocated(memory(8192, 1));
    });
    const View view(folder / "trace");
    const auto events = view.events();
    REQUIRE(events.size() == 2);
    CHECK(events[0].call == CallName::mem_alloc);
    CHECK(view.frames(events[0].stack).size() == 1);
    CHECK(events[1].call == CallName::mem_alloc_pitch);
    CHECK(view.frames(events[1].stack).size() == 3);
}

TEST_CASE("recorder: equal stacks before and after modules changed are two", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        allocate(recorder, 4096, 1);
        trace::ModuleRecord module{};
        module.change = trace::ModuleChange::unload;
        recorder.module(module);
        recorder.modules_changed();
        allocate(recorder, 8192, 1);
    });
    const View view(folder / "trace");
    const auto events = view.events();
    CHECK(view.elements<trace::ModuleRecord>(SectionType::modules).size() == 1);
    REQUIRE(events[0].stack != events[1].stack);
    CHECK(slot(view, events[0].stack).modules == 0);
    CHECK(slot(view, events[1].stack).modules == 1);
}

TEST_CASE("recorder: what a reader shows beside the events", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        recorder.set("exe", "/bin/true");
        recorder.set_statistic("frees", 42);
        recorder.set_device(1, "A device", 1 << 30);
        recorder.mark_seen(trace::kUnwinderReplaced);
        recorder.note(EventKind::out_of_memory, memory(0, 1 << 30));
        recorder.counters().stacks_walked += 3;
    });
    const View view(folder / "trace");
    const auto text = view.elements<char>(SectionType::settings);
    CHECK(std::string(text.begin(), text.end()) == std::string("exe\0/bin/true\0", 14));
    const auto statistics = view.elements<trace::StatisticRecord>(SectionType::statistics);
    REQUIRE(statistics.size() == 1);
    CHECK(statistics[0].value == 42);
    CHECK(view.device(1).total == 1 << 30);
    CHECK(view.header().seen == (trace::kUnwinderReplaced | trace::kOutOfMemory));
    CHECK(view.counters().stacks_walked == 3);
    CHECK(view.header().identity != 0);
}

TEST_CASE("recorder: live memory beyond the table is counted, and its bytes stay right",
          "[record]") {
    const Folder folder;
    FakeStacks stacks;
    constexpr std::uint64_t kBlocks = 140'000; // the table has 131,072 slots
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        for (std::uint64_t i = 1; i <= kBlocks; ++i)
            recorder.allocated(memory(i * 512, 65536));
    });
    {
        const View view(folder / "trace");
        CHECK(view.live().size() + view.counters().live_dropped == kBlocks);
        CHECK(view.live().size() > 110'000);
        CHECK((view.header().seen & trace::kLiveTableFull) != 0);
        CHECK(view.device(0).live == kBlocks * 65536);
    }
    record(folder / "freed", stacks, [&](Recorder& recorder) {
        for (std::uint64_t i = 1; i <= kBlocks; ++i)
            recorder.allocated(memory(i * 512, 65536));
        for (std::uint64_t i = 1; i <= kBlocks; ++i)
            recorder.freed(AddressSpace::device, memory(i * 512, 65536));
    });
    const View view(folder / "freed");
    CHECK(view.live().empty());
    CHECK(view.counters().unknown_frees == view.counters().live_dropped);
    CHECK(view.device(0).live == 0);
    CHECK(view.device(0).live_peak == kBlocks * 65536);
}

TEST_CASE("recorder: stacks beyond the table are counted, the events stay", "[record]") {
    const Folder folder;
    FakeStacks stacks;
    constexpr std::uint64_t kStacks = 140'000; // the frames have room for 2 million
    record(folder / "trace", stacks, [&](Recorder& recorder) {
        stacks.frames.assign(16, 1);
        for (std::uint64_t i = 1; i <= kStacks; ++i) {
            stacks.frames[0] = i;
            const RecordedCall call(&recorder, CallName::mem_alloc);
            recorder.note(EventKind::mark, memory(i, 0));
        }
    });
    const View view(folder / "trace");
    const auto slots = view.elements<trace::StackSlot>(SectionType::stacks);
    const auto kept =
        std::ranges::count_if(slots, [](const trace::StackSlot& it) { return it.first != 0; });
    CHECK(static_cast<std::uint64_t>(kept) + view.counters().stacks_dropped == kStacks);
    CHECK(kept > 100'000);
    CHECK((view.header().seen & trace::kStackTableFull) != 0);
    CHECK(view.events().size() == kStacks);
}
