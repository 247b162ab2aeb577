// What a pool does, as events of the recording.
#pragma once

#include "core/pool_observer.h"
#include "core/record/recorder.h"
#include "shim/recorded_contexts.h"
#include "shim/vmm_source.h"

#include <cstdint>

namespace cachealloc::shim {

// The stream that the calling thread's free is ordered by, while one of these lives: the pool does
// not know the handle.
class StreamOfCall {
  public:
    // Does nothing where nothing is recorded.
    StreamOfCall(const Recorder* recorder, CUstream stream) : recorder_(recorder) {
        if (recorder_ != nullptr) [[unlikely]]
            begin(stream);
    }
    ~StreamOfCall() {
        if (recorder_ != nullptr) [[unlikely]]
            end();
    }
    StreamOfCall(const StreamOfCall&) = delete;
    StreamOfCall& operator=(const StreamOfCall&) = delete;

  private:
    static void begin(CUstream stream);
    static void end();

    const Recorder* const recorder_;
};

// A stream's handle as recorded: 0 for the legacy stream, whichever way it was named.
std::uint64_t recorded_stream(CUstream stream);

class RecordedPool final : public PoolObserver {
  public:
    // Null: nothing is recorded, and no pool may be given this observer.
    // `source` says which pieces memory consists of.
    RecordedPool(Recorder* recorder, RecordedContext context, VmmSource& source)
        : recorder_(recorder), context_(context), source_(source) {}

    void freed(const Block& block, bool settled) override;
    void settled(const Block& block) override;
    void segment_allocated(std::uint64_t base, std::uint64_t bytes, bool small) override;
    void segment_freed(std::uint64_t base, std::uint64_t bytes, bool small) override;
    void memory_mapped(std::uint64_t base, std::uint64_t bytes) override;
    void memory_unmapped(std::uint64_t base, std::uint64_t bytes) override;
    void alias_mapped(std::uint64_t base, std::uint64_t bytes) override;
    void alias_unmapped(std::uint64_t base, std::uint64_t bytes) override;

    // The pool has handed out `occupied` bytes for a request of `bytes`.
    void allocated(std::uint64_t address, std::uint64_t bytes, std::uint64_t occupied,
                   std::uint64_t stream, std::uint8_t flags);

  private:
    MemoryEvent about(const Block& block) const;
    void note_segment(trace::EventKind kind, std::uint64_t base, std::uint64_t bytes,
                      std::uint8_t flags);
    void note_pieces(trace::EventKind kind, std::uint64_t base, std::uint64_t bytes);

    Recorder* const recorder_;
    const RecordedContext context_;
    VmmSource& source_;
};

} // namespace cachealloc::shim
