// How a recording begins and ends.
#include "core/record/recorder_parts.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include <sys/random.h>

namespace cachealloc {

namespace {

constexpr std::uint64_t kMiB = 1U << 20;
constexpr std::uint64_t kRingStep = 4 * kMiB;
constexpr std::uint64_t kLiveBytes = 8 * kMiB;   ///< 131,072 live allocations
constexpr std::uint64_t kFrameBytes = 16 * kMiB; ///< 65,536 stacks of 32 frames
constexpr std::uint64_t kStackSlots = 131'072;   ///< twice as many: probing stays short
constexpr std::uint64_t kModuleBytes = 8 * kMiB; ///< 8,192 loads and unloads
constexpr std::uint64_t kThreadBytes = 8 * kMiB; ///< 131,072 threads
constexpr std::uint64_t kTextBytes = 64 << 10;
constexpr std::uint64_t kStatistics = 2048;

/// Zeroed, and never destroyed: other libraries' destructors may still free memory after main().
alignas(TraceFile) std::byte g_file_memory[sizeof(TraceFile)];
alignas(RecorderParts) std::byte g_parts_memory[sizeof(RecorderParts)];
alignas(Recorder) std::byte g_recorder_memory[sizeof(Recorder)];
bool g_started = false;

} // namespace

RecorderSections::RecorderSections(std::uint64_t ring_bytes) {
    using trace::SectionType;
    const std::uint64_t ring = std::max<std::uint64_t>(ring_bytes, trace::kChunkBytes);
    const std::uint64_t ring_step = std::min(ring, kRingStep);
    const std::uint64_t slots = kStackSlots * sizeof(trace::StackSlot);
    const std::uint64_t devices_bytes = trace::kDevices * sizeof(trace::DeviceCounters);
    plans[events] = {SectionType::events, trace::kChunkBytes, ring, ring_step, ring_step};
    plans[live] = {SectionType::live, sizeof(trace::EventRecord), kLiveBytes, 0, kLiveBytes};
    plans[stacks] = {SectionType::stacks, sizeof(trace::StackSlot), slots, 0, slots};
    plans[frames] = {SectionType::frames, sizeof(trace::Frame), kFrameBytes, kMiB, 0};
    plans[modules] = {SectionType::modules, sizeof(trace::ModuleRecord), kModuleBytes, kMiB / 4, 0};
    plans[threads] = {SectionType::threads, sizeof(trace::ThreadRecord), kThreadBytes, kMiB / 16,
                      0};
    plans[devices] = {SectionType::devices, sizeof(trace::DeviceCounters), devices_bytes, 0,
                      devices_bytes};
    plans[statistics] = {SectionType::statistics, sizeof(trace::StatisticRecord),
                         kStatistics * sizeof(trace::StatisticRecord), 0, 0};
    plans[settings] = {SectionType::settings, 1, kTextBytes, 0, 0};
}

Recorder* Recorder::start(const RecorderSettings& settings, int& error, std::size_t& path_index) {
    error = g_started ? EBUSY : ENOENT;
    path_index = 0;
    if (g_started) return nullptr;
    auto* const file = new (g_file_memory) TraceFile;
    const RecorderSections sections(settings.ring_bytes);
    for (std::size_t i = 0; i < settings.path_count && error != 0; ++i) {
        path_index = i;
        error = file->create(settings.paths[i], sections.plans);
    }
    if (error != 0) return nullptr;
    if (!RecorderParts::come_alive()) {
        error = ENOMEM;
        file->remove_name();
        return nullptr;
    }
    g_started = true;
    auto* const parts = new (g_parts_memory) RecorderParts(*file, settings);
    std::uint64_t identity = 0;
    if (getrandom(&identity, sizeof identity, GRND_NONBLOCK) != sizeof identity)
        identity = parts->header.start.ticks ^ parts->header.start.realtime_ns;
    parts->header.identity = identity;
    parts->header.state.store(static_cast<std::uint32_t>(trace::RunState::recording),
                              std::memory_order_release);
    return new (g_recorder_memory) Recorder(*parts);
}

void Recorder::exiting(bool remove) {
    if (!RecorderParts::alive()) return;
    const Writing writing(t_state);
    if (!writing) return;
    parts_.devices.flush(t_state.batch);
    parts_.note_latest();
    parts_.header.state.store(static_cast<std::uint32_t>(trace::RunState::clean_exit),
                              std::memory_order_release);
    if (remove) parts_.file.remove_name();
}

void Recorder::forget_in_child() {
    RecorderParts::forget();
}

} // namespace cachealloc
