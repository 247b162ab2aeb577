#include "shim/recorded_calls.h"

namespace cachealloc::shim {

namespace {

// What the driver frees when a context ends. Stream-ordered memory belongs to a memory pool,
// physical memory and its mappings to the process; the pool's own memory ends with the pool.
bool ends_with_context(trace::MemoryType type) {
    switch (type) {
    case trace::MemoryType::device:
    case trace::MemoryType::managed:
    case trace::MemoryType::pinned:
    case trace::MemoryType::array:
    case trace::MemoryType::pitched:
        return true;
    default:
        return false;
    }
}

} // namespace

void record_passed(Process& state, MemoryEvent event, int device) {
    if (event.address == 0) return; // nothing was asked for, and got
    const RecordedContext context = state.recording.contexts.current();
    event.pool = context.number;
    event.device = device == kDeviceOfContext ? context.device : static_cast<std::uint8_t>(device);
    state.recording.recorder()->allocated(event);
}

PassedFree::PassedFree(Recorder* recorder, trace::AddressSpace space, std::uint64_t address,
                       std::uint64_t stream, std::uint8_t flags)
    : recorder_(address != 0 ? recorder : nullptr) { // freeing nothing is allowed
    if (recorder_ == nullptr) return;
    known_ = recorder->find(space, address, was_);
    MemoryEvent event = was_;
    event.address = address;
    event.stream = stream;
    event.flags = flags | trace::kSettled;
    // What the recorder never heard of may not even be an allocation, unless its table was full.
    recorded_ = known_ || recorder->counters().live_dropped.load(std::memory_order_relaxed) != 0;
    if (recorded_) recorder->freed(space, event);
}

CUresult PassedFree::done(CUresult result) {
    if (recorder_ == nullptr) return result;
    if (result != CUDA_SUCCESS) {
        if (known_) recorder_->not_freed(was_);
    } else if (!recorded_) {
        recorder_->counters().unknown_frees.fetch_add(1, std::memory_order_relaxed);
    }
    return result;
}

void record_contexts_ended(Process& state, const std::vector<CUcontext>& contexts) {
    Recorder* const recorder = state.recording.recorder();
    if (recorder == nullptr) return;
    for (const CUcontext handle : contexts) {
        RecordedContext gone = state.recording.contexts.ended(handle);
        if (gone.number == RecordedContext::kNone) continue;
        recorder->end_all(
            [](const trace::EventRecord& record, void* number) {
                return record.kind == trace::EventKind::alloc &&
                       record.pool == *static_cast<const std::uint8_t*>(number) &&
                       ends_with_context(record.memory);
            },
            &gone.number);
    }
}

} // namespace cachealloc::shim
