#include "core/record/recorder_parts.h"

#include <cerrno>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace cachealloc {

using trace::EventKind;
using trace::EventRecord;

constinit thread_local ThreadState t_state{};

namespace {

constexpr std::uint64_t kTidyNs = 100'000'000;
constexpr std::uint32_t kMaxDepth = 256;

std::atomic<std::uint32_t> g_never_alive{0};

template <typename T>
T* memory_of(SectionSpace& space) {
    return reinterpret_cast<T*>(space.data);
}

bool is_segment(const EventRecord& record) {
    return record.kind >= EventKind::segment_alloc && record.kind <= EventKind::segment_unmap;
}

/// The thread's key destructor. What other libraries' destructors free after it claims a chunk
/// again, which arms the key again.
void end_thread(void* parts) {
    ThreadState& state = t_state;
    state.armed = false;
    if (!RecorderParts::alive()) return;
    const Writing writing(state);
    if (writing) static_cast<RecorderParts*>(parts)->finish_thread(state);
}

} // namespace

std::atomic<std::uint32_t>* RecorderParts::alive_ = &g_never_alive;

bool RecorderParts::come_alive() {
    const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* const page =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    // Kernels before 4.14 do not know it: there a child without fork handlers stops at its first
    // claim of a chunk.
    madvise(page, bytes, MADV_WIPEONFORK);
    alive_ = new (page) std::atomic<std::uint32_t>{1};
    return true;
}

RecorderParts::RecorderParts(TraceFile& trace_file, const RecorderSettings& settings)
    : file(trace_file), header(file.header()), clock(TraceClock::choose()), stacks(settings.stacks),
      free_stacks(settings.free_stacks), threads(file, file.space(RecorderSections::threads)),
      ring(file, file.space(RecorderSections::events), threads),
      live(memory_of<EventRecord>(file.space(RecorderSections::live)),
           file.space(RecorderSections::live).capacity() / sizeof(EventRecord)),
      stack_table(file, file.space(RecorderSections::stacks), file.space(RecorderSections::frames)),
      modules(file, file.space(RecorderSections::modules)),
      statistics(file.space(RecorderSections::statistics)),
      texts(file.space(RecorderSections::settings)),
      devices(memory_of<trace::DeviceCounters>(file.space(RecorderSections::devices))),
      refresh_(settings.refresh), refresh_context_(settings.refresh_context), tidy_ticks_(kTidyNs),
      start_ns_(TraceClock::monotonic_ns()) {
    header.clock = clock.kind();
    header.start = clock.pair();
    header.stack_depth = settings.stack_depth < kMaxDepth ? settings.stack_depth : kMaxDepth;
    note_latest();
    has_end_key_ = pthread_key_create(&end_key_, end_thread) == 0;
}

bool RecorderParts::prepare(ThreadState& state, EventRecord& record) {
    if (state.place.chunk == nullptr || state.place.next == trace::kChunkRecords) {
        if (static_cast<std::uint32_t>(getpid()) != header.pid) return false;
        claim_chunk(state, record.time);
    }
    state.last_time = record.time;
    record.thread = state.number;
    record.sequence.store(state.place.chunk != nullptr ? EventRing::next_sequence(state.place)
                                                       : trace::kLostSequence,
                          std::memory_order_relaxed);
    return true;
}

bool RecorderParts::claim_chunk(ThreadState& state, std::uint64_t now) {
    if (!state.entered) {
        state.entered = true;
        state.number = threads.enter(now);
    }
    arm(state);
    bool fresh = false;
    if (!ring.ready(state.place, state.number, fresh)) return false;
    state.fresh = true;
    devices.flush(state.batch);
    return true;
}

/// Has the thread's end told. The C library may allocate here, once a thread.
void RecorderParts::arm(ThreadState& state) {
    if (state.armed || !has_end_key_) return;
    state.armed = pthread_setspecific(end_key_, this) == 0;
    threads.set_end(state.number, 0);
}

void RecorderParts::commit(ThreadState& state, const EventRecord& record) {
    if (state.place.chunk != nullptr) {
        EventRing::commit(state.place, record);
    } else {
        header.counters.lost.fetch_add(1, std::memory_order_relaxed);
    }
}

void RecorderParts::enter(ThreadState& state, const EventRecord& record) {
    EventRecord replaced;
    if (!live.insert(record, replaced)) {
        header.counters.live_dropped.fetch_add(1, std::memory_order_relaxed);
        header.seen.fetch_or(trace::kLiveTableFull, std::memory_order_relaxed);
    }
    if (replaced.sequence.load(std::memory_order_relaxed) != 0) count(state, replaced, -1);
}

void RecorderParts::count(ThreadState& state, const EventRecord& record, int sign) {
    const auto change = [&](DeviceQuantity what) {
        devices.change(state.batch, record.device, what,
                       sign * static_cast<std::int64_t>(record.size), state.last_time);
    };
    if (is_segment(record)) {
        if ((record.flags & trace::kSecond) == 0) change(DeviceQuantity::reserved);
    } else if (trace::on_device(record.memory)) {
        change(DeviceQuantity::live);
        if (record.memory == trace::MemoryType::pooled) change(DeviceQuantity::pooled);
    } else if (record.memory == trace::MemoryType::pinned) {
        change(DeviceQuantity::host);
    }
}

void RecorderParts::capture(ThreadState& state) {
    trace::Frame frames[kMaxDepth];
    bool cut = false;
    state.capturing = true;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const std::size_t count = stacks->capture(frames, header.stack_depth, cut);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    state.capturing = false;
    trace::Counters& counters = header.counters;
    if (count == 0) {
        counters.stacks_failed.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    state.stack = stack_table.intern({frames, count}, cut, modules.size());
    state.stack_flags = cut ? trace::kCutStack : 0;
    if (state.stack != 0) return;
    counters.stacks_dropped.fetch_add(1, std::memory_order_relaxed);
    header.seen.fetch_or(trace::kStackTableFull, std::memory_order_relaxed);
}

void RecorderParts::tidy(ThreadState& state) {
    const bool due = state.last_time >= tidy_due_.load(std::memory_order_relaxed);
    if (!state.fresh && !due) return;
    if (static_cast<std::uint32_t>(getpid()) != header.pid) return;
    if (state.fresh) {
        state.fresh = false;
        const Writing writing(state);
        if (writing) {
            threads.refresh_name(state.number);
            ring.grow_ahead();
            stack_table.grow_ahead();
            live.populate_some();
        }
    }
    if (!due || tidying_.exchange(true, std::memory_order_acquire)) return;
    if (const Writing writing(state); writing) {
        note_latest();
        // A tick's length is known better and better.
        const std::uint64_t ns = TraceClock::monotonic_ns() - start_ns_;
        const std::uint64_t ticks = state.last_time - header.start.ticks;
        if (ns > kTidyNs && ticks < ~std::uint64_t{0} / kTidyNs) tidy_ticks_ = ticks * kTidyNs / ns;
        tidy_due_.store(state.last_time + tidy_ticks_, std::memory_order_relaxed);
    }
    if (refresh_ != nullptr) refresh_(refresh_context_);
    tidying_.store(false, std::memory_order_release);
}

/// By one thread at a time.
void RecorderParts::note_latest() {
    const trace::ClockPair now = clock.pair();
    const std::uint32_t sequence = header.latest_sequence.load(std::memory_order_relaxed);
    header.latest_sequence.store(sequence | 1, std::memory_order_relaxed);
    header.latest_ticks.store(now.ticks, std::memory_order_release);
    header.latest_realtime_ns.store(now.realtime_ns, std::memory_order_release);
    header.latest_sequence.store((sequence | 1) + 1, std::memory_order_release);
    header.counters.live_records.store(live.size(), std::memory_order_relaxed);
}

void RecorderParts::finish_thread(ThreadState& state) {
    if (static_cast<std::uint32_t>(getpid()) != header.pid) return;
    EventRing::close(state.place);
    devices.flush(state.batch);
    threads.set_end(state.number, clock.before_release());
}

bool gives_back(trace::CallName call) {
    switch (call) {
    case trace::CallName::mem_free:
    case trace::CallName::mem_free_async:
    case trace::CallName::mem_free_host:
    case trace::CallName::mem_host_unregister:
    case trace::CallName::array_destroy:
    case trace::CallName::mem_release:
    case trace::CallName::mem_unmap:
        return true;
    default:
        return false;
    }
}

} // namespace cachealloc
