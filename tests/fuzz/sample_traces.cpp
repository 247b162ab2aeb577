#include "tests/fuzz/sample_traces.h"

#include "tests/tools/trace_builder.h"

#include <cstdint>

namespace cachealloc::tests {

namespace {

using trace::CallName;
using trace::EventKind;
using trace::MemoryType;

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBase = 0x7f0000000000; ///< device addresses
constexpr std::uint64_t kProgram = 0x400000;
constexpr std::uint64_t kLibrary = 0x7e0000000000;

/// Modules, threads, a device, settings: what every recording begins with.
void set_scene(TraceBuilder& builder) {
    builder.module("/opt/app/bin/train", 0, kProgram, kProgram + 0x100000, "\x01\x02\x03\x04");
    builder.module("/opt/app/lib/libmodel.so", kLibrary, kLibrary, kLibrary + 0x200000,
                   "abcdefghijklmnopqrst");
    builder.module("/opt/cachealloc/lib/libcachealloc.so", kLibrary + 0x400000, kLibrary + 0x400000,
                   kLibrary + 0x500000, "cachealloc", trace::kOwnModule);
    builder.thread("train", 4242);
    builder.thread("loader", 4243);
    builder.device(0, "NVIDIA H200", 143771 * kMiB);
    builder.setting("exe", "/opt/app/bin/train");
    builder.setting("command", "/opt/app/bin/train --steps 10");
    builder.setting("CACHEALLOC_CONF", "stacks:alloc");
    builder.statistic("driver_alloc_calls", 3);
    builder.statistic("native_waits", 0);
}

std::uint32_t usual_stack(TraceBuilder& builder, std::uint64_t place) {
    return builder.stack(
        {kLibrary + 0x400100, kLibrary + 0x1000 + place, kLibrary + 0x2000, kProgram + 0x3000});
}

Bytes plain() {
    TraceBuilder builder;
    set_scene(builder);
    const std::uint32_t weights = usual_stack(builder, 0x10);
    const std::uint32_t batch = usual_stack(builder, 0x20);
    builder.segment_alloc(kBase, 64 * kMiB, true, {.stack = weights});
    builder.segment_alloc(kBase + 64 * kMiB, 2 * kMiB, false, {.stack = batch});
    builder.alloc(kBase, 20 * kMiB, {.stack = weights, .call = CallName::mem_alloc});
    builder.alloc(kBase + 64 * kMiB, 1000, {.stack = batch, .thread = 2, .extra = 24});
    for (std::uint64_t step = 0; step < 40; ++step) {
        const std::uint64_t address = kBase + 20 * kMiB;
        builder.alloc(address, (1 + step % 7) * kMiB,
                      {.stack = batch, .thread = 1 + static_cast<std::uint32_t>(step % 2)});
        const bool pending = step % 3 == 0;
        builder.free(address, {.thread = 1 + static_cast<std::uint32_t>(step % 2)}, pending);
        if (pending) builder.free_completed(address, (1 + step % 7) * kMiB, {.extra = 0});
    }
    return builder.bytes();
}

Bytes wrapped() {
    TraceBuilder builder;
    builder.ring_chunks(3);
    set_scene(builder);
    const std::uint32_t early = usual_stack(builder, 0x10);
    const std::uint32_t late = usual_stack(builder, 0x40);
    builder.segment_alloc(kBase, 256 * kMiB, true, {.stack = early});
    builder.alloc(kBase, 30 * kMiB, {.stack = early});
    for (std::uint64_t i = 0; i < 300; ++i) {
        builder.alloc(kBase + (32 + i % 5) * kMiB, kMiB, {.stack = late});
        builder.free(kBase + (32 + i % 5) * kMiB);
    }
    return builder.bytes();
}

Bytes every_kind() {
    TraceBuilder builder;
    set_scene(builder);
    builder.device(1, "NVIDIA H200", 143771 * kMiB);
    const std::uint32_t stack = usual_stack(builder, 0x80);
    std::uint64_t address = kBase;
    for (std::uint8_t memory = 1; memory < trace::kMemoryTypes; ++memory) {
        EventDetails details{.stack = stack, .memory = static_cast<MemoryType>(memory)};
        details.device = memory % 2;
        details.stream = memory % 3 == 0 ? 0x5555 : 0;
        details.call = static_cast<CallName>(memory);
        details.flags = memory % 3 == 0 ? trace::kStreamOrdered : 0;
        builder.alloc(address, memory * kMiB, details);
        if (memory % 2 == 0) {
            details.free_stack = stack;
            builder.free(address, details);
        }
        address += 16 * kMiB;
    }
    builder.segment_alloc(address, 32 * kMiB);
    builder.event(EventKind::segment_map, address + 32 * kMiB, 4 * kMiB);
    builder.event(EventKind::segment_unmap, address + 32 * kMiB, 4 * kMiB);
    builder.segment_free(address);
    builder.event(EventKind::trim, 0, 32 * kMiB);
    builder.event(EventKind::mark, 7, 8);
    return builder.bytes();
}

Bytes out_of_memory() {
    TraceBuilder builder;
    set_scene(builder);
    builder.header().state = static_cast<std::uint32_t>(trace::RunState::recording);
    const std::uint32_t holder = usual_stack(builder, 0x10);
    const std::uint32_t asker = usual_stack(builder, 0x90);
    builder.segment_alloc(kBase, 1024 * kMiB, true, {.stack = holder});
    for (std::uint64_t i = 0; i < 8; ++i)
        builder.alloc(kBase + i * 128 * kMiB, 127 * kMiB, {.stack = holder});
    for (std::uint64_t i = 1; i < 8; i += 2)
        builder.free(kBase + i * 128 * kMiB);
    builder.out_of_memory(600 * kMiB, 10 * kMiB, {.stack = asker});
    return builder.bytes();
}

Bytes changed_modules() {
    TraceBuilder builder;
    set_scene(builder);
    const std::uint64_t place = kLibrary + 0x800000;
    builder.module("/opt/app/lib/alpha.so", place, place, place + 0x10000, "alpha-id");
    const std::uint32_t alpha = builder.stack({place + 0x500, kProgram + 0x3000});
    builder.alloc(kBase, 3 * kMiB, {.stack = alpha});
    builder.unload(place);
    builder.module("/opt/app/lib/beta.so", place, place, place + 0x8000, "beta-id");
    const std::uint32_t beta = builder.stack({place + 0x500, kProgram + 0x3000});
    builder.alloc(kBase + 16 * kMiB, 5 * kMiB, {.stack = beta});
    builder.unload(place);
    const std::uint32_t nobody = builder.stack({place + 0x500, 1, ~std::uint64_t{0}}, true);
    builder.alloc(kBase + 32 * kMiB, 7 * kMiB, {.stack = nobody});
    return builder.bytes();
}

Bytes lost() {
    TraceBuilder builder;
    set_scene(builder);
    const std::uint32_t stack = usual_stack(builder, 0x10);
    for (std::uint64_t i = 0; i < 20; ++i) {
        if (i % 4 == 1) builder.lose();
        builder.alloc(kBase + i * kMiB, kMiB, {.stack = stack});
        if (i % 4 == 2) builder.unlose();
        if (i % 3 == 0) builder.free(kBase + i * kMiB);
    }
    builder.unlose();
    builder.free(kBase + 999 * kMiB);
    builder.header().counters.nested = 5;
    builder.header().counters.stacks_failed = 2;
    builder.header().seen = trace::kStackTableFull | trace::kLiveTableFull | trace::kModulesFull |
                            trace::kRingCapped | trace::kUnwinderReplaced;
    return builder.bytes();
}

/// The process was killed: a record of each thread was begun and not finished, and the file's end
/// was never written.
Bytes killed() {
    Bytes bytes = plain();
    auto* const header = reinterpret_cast<trace::Header*>(bytes.data());
    header->state = static_cast<std::uint32_t>(trace::RunState::recording);
    header->latest_sequence = 3; // in the middle of being noted
    for (std::uint32_t i = 0; i < header->section_count; ++i) {
        const trace::Section& section = header->sections[i];
        if (section.type != trace::SectionType::events) continue;
        for (std::uint64_t at = 0; at < section.used; at += trace::kChunkBytes) {
            auto* const chunk = reinterpret_cast<trace::Chunk*>(bytes.data() + section.offset + at);
            std::uint32_t last = trace::kChunkRecords;
            while (last > 1 && chunk->records[last - 1].sequence == 0)
                --last;
            chunk->records[last - 1].sequence = 0;
            chunk->header.state = trace::ChunkState::writing;
        }
    }
    return bytes;
}

Bytes empty() {
    TraceBuilder builder;
    return builder.bytes();
}

Bytes starting() {
    TraceBuilder builder;
    builder.header().state = static_cast<std::uint32_t>(trace::RunState::starting);
    return builder.bytes();
}

/// A later version of the same major: one more section, kinds, types and calls that are not known.
Bytes newer_minor() {
    TraceBuilder builder;
    builder.header().minor = 7;
    set_scene(builder);
    const std::uint32_t stack = usual_stack(builder, 0x10);
    builder.alloc(kBase, 3 * kMiB, {.stack = stack});
    builder.event(static_cast<EventKind>(200), kBase, 5 * kMiB, {.stack = stack});
    builder.alloc(kBase + 8 * kMiB, kMiB, {.stack = stack, .memory = static_cast<MemoryType>(99)});
    builder.alloc(kBase + 16 * kMiB, kMiB, {.stack = stack, .call = static_cast<CallName>(250)});
    Bytes bytes = builder.bytes();
    auto* const header = reinterpret_cast<trace::Header*>(bytes.data());
    trace::Section& section = header->sections[header->section_count++];
    section.type = static_cast<trace::SectionType>(77);
    section.stride = 48;
    section.offset = bytes.size();
    section.length = 4096;
    section.used = 480;
    header->file_bytes += 4096;
    bytes.resize(bytes.size() + 4096, std::byte{0x5a});
    return bytes;
}

Bytes newer_major() {
    TraceBuilder builder;
    builder.header().major = trace::kMajor + 1;
    return builder.bytes();
}

} // namespace

const std::vector<SampleTrace>& sample_traces() {
    static const std::vector<SampleTrace> all = {
        {"changed_modules", true, changed_modules},
        {"empty", true, empty},
        {"every_kind", true, every_kind},
        {"killed", true, killed},
        {"lost", true, lost},
        {"newer_major", false, newer_major},
        {"newer_minor", true, newer_minor},
        {"out_of_memory", true, out_of_memory},
        {"plain", true, plain},
        {"starting", true, starting},
        {"wrapped", true, wrapped},
    };
    return all;
}

} // namespace cachealloc::tests
