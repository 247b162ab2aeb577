// The snapshot that pytorch.org/memory_viz and torch.cuda._memory_viz read.
#include "tools/exports/exporter.h"
#include "tools/exports/memory_viz_settings.h"
#include "tools/exports/pickle_writer.h"
#include "tools/exports/viewer_memory.h"

#include <array>
#include <memory>
#include <unordered_map>

namespace cachealloc::tools {
namespace {

using trace::EventKind;
using trace::MemoryType;

constexpr std::array<std::string_view, 7> kActions = {
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap"};

/// The page shows memory with other numbers than (0, 0) as private pools. The pool of the first
/// context is the default one; memory that no pool of ours owns is told apart by its type.
constexpr std::uint64_t kForeignPools = 1000;

std::uint64_t pool_number(const ViewerItem& item) {
    if (item.memory != MemoryType::pooled) {
        return kForeignPools + static_cast<std::uint64_t>(item.memory);
    }
    constexpr std::uint8_t kNoPool = 255;
    return item.pool == kNoPool ? 0 : item.pool;
}

/// Writes the parts of the snapshot. Lists of frames are written once.
class SnapshotWriter {
  public:
    explicit SnapshotWriter(ExportJob& job) : job_(job), pickle_(job.output) {}

    void write() {
        const std::vector<std::uint8_t> devices = export_devices(job_);
        pickle_.open_dict();
        pickle_.key("device_traces");
        write_traces(devices);
        pickle_.key("segments");
        pickle_.open_list();
        for (const auto& memory : memories_) {
            write_segments(*memory);
        }
        pickle_.close_list();
        pickle_.key("allocator_settings");
        write_allocator_settings(pickle_, job_.trace, job_.history);
        pickle_.key("external_annotations");
        pickle_.open_list();
        pickle_.close_list();
        pickle_.close_dict();
        pickle_.finish();
    }

    void write_change(ViewerAction action, std::uint64_t address, const ViewerItem& item,
                      std::uint32_t stack, const Event& cause) {
        const bool block = action <= ViewerAction::free_completed;
        begin_event(kActions[static_cast<std::size_t>(action)], block ? item.requested : item.size,
                    cause.time);
        pickle_.key("addr");
        pickle_.integer(address);
        pickle_.key("stream");
        pickle_.integer(item.stream);
        pickle_.key("user_metadata");
        write_metadata(item.memory, cause);
        pickle_.key("pool_id");
        write_pool(item);
        end_event(stack);
    }

    void write_out_of_memory(const Event& event) {
        begin_event("oom", event.size, event.time);
        pickle_.key("device_free");
        pickle_.integer(event.stream); // what the recording has in its place
        pickle_.key("stream");
        pickle_.integer(0);
        pickle_.key("user_metadata");
        write_metadata(event.memory, event);
        end_event(event.stack);
    }

  private:
    class DeviceVisitor;

    void write_traces(const std::vector<std::uint8_t>& devices);
    void write_snapshot_mark(const ViewerMemory& memory, std::uint64_t time);
    void write_segments(const ViewerMemory& memory);
    void write_segment(const ViewerMemory& memory, std::uint64_t address,
                       const ViewerItem& segment);
    void write_block(std::uint64_t address, std::uint64_t size, const ViewerItem* block);

    void begin_event(std::string_view action, std::uint64_t size, std::uint64_t time) {
        pickle_.item();
        pickle_.open_dict();
        pickle_.key("action");
        pickle_.text(action);
        pickle_.key("size");
        pickle_.integer(size);
        pickle_.key("time_us");
        pickle_.integer(job_.trace.clock.epoch_ns(time) / 1000);
        pickle_.key("compile_context");
        pickle_.text("N/A");
    }

    void end_event(std::uint32_t stack) {
        if (stack != 0) {
            pickle_.key("frames");
            write_frames(stack);
        }
        pickle_.close_dict();
    }

    void write_frames(std::uint32_t stack) {
        PickleMemo& memo = stacks_[stack];
        if (pickle_.recall(memo)) {
            return;
        }
        pickle_.open_list();
        for (const auto id : job_.stacks.frames(stack)) {
            pickle_.item();
            write_frame(id);
        }
        pickle_.close_list();
        pickle_.memorise(memo);
    }

    void write_frame(StackSymbols::FrameId id) {
        PickleMemo& memo = frames_[id];
        if (pickle_.recall(memo)) {
            return;
        }
        const SourceFrame& frame = job_.stacks.frame(id);
        pickle_.open_dict();
        pickle_.key("name");
        pickle_.text(frame.function);
        pickle_.key("filename");
        pickle_.text(frame.file.empty() ? "??" : frame.file);
        pickle_.key("line");
        pickle_.integer(frame.line);
        pickle_.close_dict();
        pickle_.memorise(memo);
    }

    /// "managed: cuMemAllocManaged, thread worker (4711)".
    void write_metadata(MemoryType memory, const Event& cause) {
        const std::uint64_t key = std::uint64_t{cause.thread} << 16 |
                                  std::uint64_t{static_cast<std::uint8_t>(memory)} << 8 |
                                  std::uint64_t{static_cast<std::uint8_t>(cause.call)};
        PickleMemo& memo = metadata_[key];
        if (pickle_.recall(memo)) {
            return;
        }
        std::string text(trace::memory_name(memory));
        text += memory == MemoryType::pooled || memory == MemoryType::none
                    ? ""
                    : " memory, not the pool's";
        text += ": ";
        text += trace::call_name(cause.call);
        text += ", thread " + thread_label(job_.trace, cause.thread);
        pickle_.text(text);
        pickle_.memorise(memo);
    }

    void write_pool(const ViewerItem& item) {
        const std::uint64_t number = pool_number(item);
        PickleMemo& memo = pools_[number];
        if (!pickle_.recall(memo)) {
            pickle_.pair(0, number);
            pickle_.memorise(memo);
        }
    }

    ExportJob& job_;
    PickleWriter pickle_;
    std::vector<std::unique_ptr<ViewerMemory>> memories_;
    std::unordered_map<std::uint32_t, PickleMemo> stacks_;
    std::unordered_map<StackSymbols::FrameId, PickleMemo> frames_;
    std::unordered_map<std::uint64_t, PickleMemo> metadata_;
    std::unordered_map<std::uint64_t, PickleMemo> pools_;
};

/// One device's events: from the state at the window's start to that at its end.
class SnapshotWriter::DeviceVisitor : public HistoryVisitor, public ViewerSink {
  public:
    DeviceVisitor(SnapshotWriter& writer, const ExportWindow& window, std::uint8_t device)
        : writer_(writer), window_(window), memory_(std::make_unique<ViewerMemory>(device, *this)) {
    }

    void on_start(const State& state) override { memory_->start(state); }

    void on_event(const Event& event, const State& /*state*/, const Block* /*ended*/) override {
        if (done_ || window_.behind(event.time)) {
            done_ = true;
            return;
        }
        last_.time = event.time;
        shown_ = !window_.before(event.time);
        memory_->apply(event);
        if (shown_ && event.kind == EventKind::out_of_memory && event.device == memory_->device()) {
            writer_.write_out_of_memory(event);
        }
    }

    void on_end(const State& state) override {
        shown_ = true;
        memory_->reconcile(state, last_);
    }

    [[nodiscard]] bool done() const override { return done_; }

    void on_change(ViewerAction action, std::uint64_t address, const ViewerItem& item,
                   std::uint32_t stack, const Event& cause) override {
        if (shown_) {
            writer_.write_change(action, address, item, stack, cause);
        }
    }

    [[nodiscard]] std::uint64_t last_time() const { return last_.time; }
    std::unique_ptr<ViewerMemory> take_memory() { return std::move(memory_); }

  private:
    SnapshotWriter& writer_;
    const ExportWindow& window_;
    std::unique_ptr<ViewerMemory> memory_;
    Event last_; ///< when it was
    bool shown_ = false;
    bool done_ = false;
};

void SnapshotWriter::write_traces(const std::vector<std::uint8_t>& devices) {
    pickle_.open_list();
    std::uint8_t next = 0;
    for (const std::uint8_t device : devices) {
        // A device's events are at its ordinal.
        for (; next < device; ++next) {
            pickle_.item();
            pickle_.open_list();
            pickle_.close_list();
        }
        ++next;
        pickle_.item();
        pickle_.open_list();
        DeviceVisitor visitor(*this, job_.window, device);
        job_.history.visit(visitor);
        std::unique_ptr<ViewerMemory> memory = visitor.take_memory();
        write_snapshot_mark(*memory, visitor.last_time());
        pickle_.close_list();
        memories_.push_back(std::move(memory));
    }
    pickle_.close_list();
}

void SnapshotWriter::write_snapshot_mark(const ViewerMemory& memory, std::uint64_t time) {
    std::uint64_t active = 0;
    for (const auto& [address, block] : memory.blocks()) {
        active += block.size;
    }
    begin_event("snapshot", active, time);
    pickle_.key("addr");
    pickle_.integer(0);
    pickle_.key("stream");
    pickle_.integer(0);
    end_event(0);
}

void SnapshotWriter::write_segments(const ViewerMemory& memory) {
    for (const auto& [address, segment] : memory.segments()) {
        write_segment(memory, address, segment);
    }
}

void SnapshotWriter::write_segment(const ViewerMemory& memory, std::uint64_t address,
                                   const ViewerItem& segment) {
    std::uint64_t allocated = 0;
    std::uint64_t active = 0;
    std::uint64_t requested = 0;
    const std::uint64_t end = address + segment.size;
    const auto first = memory.blocks().lower_bound(address);
    for (auto block = first; block != memory.blocks().end() && block->first < end; ++block) {
        allocated += block->second.pending ? 0 : block->second.size;
        active += block->second.size;
        requested += block->second.requested;
    }
    pickle_.item();
    pickle_.open_dict();
    const std::pair<std::string_view, std::uint64_t> numbers[] = {
        {"device", memory.device()},   {"address", address},    {"total_size", segment.size},
        {"allocated_size", allocated}, {"active_size", active}, {"requested_size", requested},
        {"stream", segment.stream},
    };
    for (const auto& [name, value] : numbers) {
        pickle_.key(name);
        pickle_.integer(value);
    }
    pickle_.key("segment_type");
    pickle_.text(segment.large ? "large" : "small");
    pickle_.key("segment_pool_id");
    write_pool(segment);
    pickle_.key("is_expandable");
    pickle_.boolean(segment.expandable);
    pickle_.key("user_metadata");
    pickle_.text(trace::memory_name(segment.memory));
    pickle_.key("frames");
    write_frames(segment.stack);
    pickle_.key("blocks");
    pickle_.open_list();
    std::uint64_t at = address;
    for (auto block = first; block != memory.blocks().end() && block->first < end; ++block) {
        if (block->first > at) {
            write_block(at, block->first - at, nullptr);
        }
        write_block(block->first, block->second.size, &block->second);
        at = block->first + block->second.size;
    }
    if (at < end) {
        write_block(at, end - at, nullptr);
    }
    pickle_.close_list();
    pickle_.close_dict();
}

void SnapshotWriter::write_block(std::uint64_t address, std::uint64_t size,
                                 const ViewerItem* block) {
    pickle_.item();
    pickle_.open_dict();
    pickle_.key("address");
    pickle_.integer(address);
    pickle_.key("size");
    pickle_.integer(size);
    pickle_.key("requested_size");
    pickle_.integer(block == nullptr ? 0 : block->requested);
    pickle_.key("state");
    pickle_.text(block == nullptr ? "inactive"
                 : block->pending ? "active_pending_free"
                                  : "active_allocated");
    pickle_.key("frames");
    write_frames(block == nullptr ? 0 : block->stack);
    pickle_.close_dict();
}

} // namespace

void export_memory_viz(ExportJob& job) {
    SnapshotWriter(job).write();
}

} // namespace cachealloc::tools
