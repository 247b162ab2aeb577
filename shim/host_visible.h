// What the device is doing that the host may look at later: asynchronous copies to host memory,
// host functions, graphs with either. While any of it is outstanding and the program has not
// synchronised with it, a cudaFree may be what the program relies on to see the result.
//
// Each such submission gets a number when the driver has accepted it. What a stream or an event
// comes after is a set of numbers (a Cover): recording an event takes the stream's, making a stream
// wait for an event adds the event's to the stream's, a synchronisation that succeeds settles what
// it covers. Only the latest number of a stream counts, since it comes after the earlier ones.
//
// Invariant: a number is settled only when the device has finished that submission. Everything that
// gets lost (tables are small and of fixed size) makes it stay outstanding, which costs a wait and
// harms nobody.
//
// Events and streams are not followed while nothing is outstanding. What is remembered of them from
// before is harmless then: it speaks of numbers that were settled since, and settling those again
// changes nothing.
//
// Thread-safe: one mutex, touched only while something is outstanding. Nothing here calls CUDA.
#pragma once

#include "shim/cuda_types.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace cachealloc::shim {

class HostVisible {
  public:
    using Number = std::uint64_t; // of a submission; 0 is none

    // A stream, in all the ways it is needed here.
    struct Stream {
        std::uint64_t id = 0;        // the driver's own, which never comes back
        CUstream handle = nullptr;   // by which the driver can be asked
        CUcontext context = nullptr; // that the stream belongs to
        CUcontext owner = nullptr;   // the context whose pool a free of it waits for
        std::uint64_t thread = 0;    // the one thread that the handle means this stream to; 0: all
    };

    // How the driver is asked whether all work of a stream is done. Called under the mutex.
    class Probe {
      public:
        virtual ~Probe() = default;
        // False also where it cannot be asked.
        virtual bool idle(const Stream& stream) = 0;
    };

    // Numbers whose submissions something comes after.
    class Cover {
      public:
        void add(Number number);
        bool has(Number number) const;
        bool empty() const { return count_ == 0; }
        template <class Visit>
        void for_each(Visit visit) const {
            for (std::size_t i = 0; i < count_; ++i)
                visit(numbers_[i]);
        }

      private:
        static constexpr std::size_t kMost = 8; // more are forgotten
        std::array<Number, kMost> numbers_{};
        std::size_t count_ = 0;
    };

    // An event as it was before a call that uses it.
    struct Seen {
        Cover cover;
        std::uint64_t version = 0; // 0: nothing is known
    };

    // A record between its begin and its end.
    struct Record {
        Cover cover;
        bool followed = false;
    };

    // Whether anything is outstanding; all other functions are needed only then.
    bool any() const { return outstanding_.load(std::memory_order_acquire) != 0; }

    // The driver has accepted host-visible work on `stream`.
    void submitted(const Stream& stream);

    // --- Synchronisations: ask before the real call, settle after its success. What another
    // thread submits or records in between is not covered.

    Number latest();
    Cover covered_by_stream(std::uint64_t id);
    Seen covered_by_event(CUevent event);
    void settle(const Cover& cover);
    // Nothing is settled if the event has been recorded again since it was seen.
    void settle(CUevent event, const Seen& seen);
    // Everything up to `upto` on the streams of that very context.
    void settle_context(CUcontext context, Number upto);
    // Everything up to `upto` that a free in the pool of `owner` waits for. Streams of other
    // contexts of the same pool are asked.
    void settle_owner(CUcontext owner, Number upto, Probe& probe);
    // Asks every stream: a blocking copy or the like has succeeded.
    void settle_idle(Probe& probe);

    // --- Order among streams.

    // Before and after an event is recorded on a stream. end_record() must follow in any case.
    Record begin_record(CUevent event, std::uint64_t id);
    void end_record(CUevent event, const Record& record, bool success);
    // The stream waits from now on for the event as it was seen.
    void joined(std::uint64_t id, CUevent event, const Seen& seen);
    // What the event stands for is no longer known: it is destroyed, or recorded unseen.
    void forget_event(CUevent event);
    void forget_events();

    // --- What ends. Before the driver's own call, so that nobody asks about a dead handle.

    // Its work goes on and stays outstanding until a wait covers it.
    void stream_ends(CUstream handle);
    // The context may be about to end: its streams are asked no more.
    void context_ends(CUcontext context);
    // It has ended, and its work, streams and events with it.
    void context_ended(CUcontext context);

    // Whether a free in the pool of `owner` must wait: something is outstanding there even after
    // its streams were asked.
    bool must_wait(CUcontext owner, Probe& probe);

    static constexpr std::size_t kPending = 64; // streams with something outstanding
    static constexpr std::size_t kEvents = 1024;
    static constexpr std::size_t kStreams = 256;

  private:
    struct Pending {
        Stream stream;
        Number number = 0; // 0: the slot is free
        bool askable = true;
    };
    struct Event {
        CUevent event = nullptr;
        std::uint32_t open = 0; // records between begin and end
        bool mixed = false;     // two were open at once: nobody knows which one counts
        std::uint64_t version = 0;
        Cover cover;
    };
    struct Joined {
        std::uint64_t id = 0;
        Cover cover;
    };

    std::span<Pending> listed() { return {pending_.data(), listed_}; }
    Pending* place_for(std::uint64_t id);
    Event* find_event(CUevent event);
    Event* make_event(CUevent event);
    bool is_current(CUevent event, const Seen& seen);
    Joined* find_joined(std::uint64_t id);
    Joined* make_joined(std::uint64_t id);
    bool is_pending(Number number);
    Cover cover_of(std::uint64_t id);
    template <class Which>
    void settle_where(Which which);
    template <class Which>
    void ask(Probe& probe, Which which);

    std::atomic<std::uint32_t> outstanding_{0};
    std::mutex mutex_;
    Number latest_ = 0;
    std::uint64_t versions_ = 0;
    std::uint64_t forgotten_ = 0; // versions up to it stand for nothing
    std::array<Pending, kPending> pending_{};
    std::size_t listed_ = 0; // slots that were ever in use
    // What found no slot: outstanding in that pool (null: in all) until a free has waited.
    Number unlisted_ = 0;
    CUcontext unlisted_owner_ = nullptr;
    std::array<Event, kEvents> events_{};
    std::array<Joined, kStreams> joined_{};
};

} // namespace cachealloc::shim
