// What the handles of the driver API stand for. All of it is guarded by the world's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda_api.h"
#include "memory.h"
#include "oracle.h"

namespace simcuda {

using Ns = std::uint64_t;
constexpr std::uint32_t kNoSlot = UINT32_MAX;

struct Access {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    bool write = false;
    bool early = false; // of a kernel that has not yet waited for the one before it
};

// A piece of device work, before it is known where and when it runs. Copyable: a graph runs it
// again and again.
struct Work {
    std::string label;
    Ns duration = 1000;
    std::vector<Access> accesses;
    std::function<void()> effect; // happens at the end of the duration
    std::function<bool()> gate;   // may start only when this holds (wait values)
    std::uintptr_t publishes = 0; // address of a value that it writes for a gate
    std::uintptr_t awaits = 0;    // address of the value that its gate reads
    bool host_code = false;       // `effect` is the program's: runs without the lock
    bool passes_free = false;     // may be submitted while a free of the context waits
    bool kernel = false;
    bool programmatic = false;    // may start before the kernel in front of it has ended ..
    bool waits_for_front = false; // .. for whose end it waits in the middle
    bool to_host = false;         // writes pageable host memory: the call waits for it
    std::shared_ptr<const CUDA_MEMCPY3D> copy;           // what a node of a graph says of itself ..
    std::shared_ptr<const CUDA_HOST_NODE_PARAMS> called; // .. when asked
};

// Work that was submitted. Invariant: `pending` counts the operations that must end before it.
struct Op {
    std::uint64_t id = 0;
    Work work;
    std::shared_ptr<const std::string> label;
    std::shared_ptr<Context> ctx;
    std::size_t pending = 0;
    std::vector<std::shared_ptr<Op>> next;
    Ns ready = 0;
    Ns finish = 0;
    bool started = false;
    bool done = false;
    std::uint32_t slot = kNoSlot;
    std::uint32_t epoch = 0;
    Clock clock; // complete once it has started
    // What its early accesses are ordered behind, when that is less than `clock`: what the host
    // knew, and these operations.
    std::optional<Clock> early_clock;
    std::vector<std::shared_ptr<Op>> early_after;
};
using OpPtr = std::shared_ptr<Op>;

struct Event;
struct Graph;

struct Node {
    Work work;
    std::vector<std::shared_ptr<Node>> after;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUgraphNode handle = nullptr; // also in copies of the node
    std::shared_ptr<Graph> child; // what a node of type GRAPH runs
    std::shared_ptr<Event> event; // what a node records or waits for, at each launch
    std::shared_ptr<void> memory; // of an allocation: gone with the last copy of the node
};
using NodePtr = std::shared_ptr<Node>;

struct Graph {
    std::vector<NodePtr> nodes; // each behind the nodes that it depends on
    CUgraph handle = nullptr;
    std::uint64_t id = 0;
};
using GraphPtr = std::shared_ptr<Graph>;

struct GraphExec {
    std::vector<NodePtr> nodes;
    OpPtr last; // the previous launch: one executable graph never overlaps itself
};

struct Stream;

struct Capture {
    std::uint64_t id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::uint64_t thread = 0;
    Stream* origin = nullptr;
    std::set<Stream*> streams;
    GraphPtr graph;
    bool invalidated = false;
};
using CapturePtr = std::shared_ptr<Capture>;

enum class StreamKind { legacy, per_thread, created };

// The kernel that a stream's next one may overtake, while it is the last thing on the stream.
struct FrontKernel {
    OpPtr last;               // the stream's `last` since then
    OpPtr op;                 // the kernel itself
    std::vector<OpPtr> after; // what it had to come behind
};

struct Stream {
    CUstream handle = nullptr;
    std::uint64_t serial = 0;
    std::shared_ptr<Context> ctx;
    StreamKind kind = StreamKind::created;
    unsigned flags = 0;
    int priority = 0;
    std::uint32_t slot = 0;
    OpPtr last;
    FrontKernel front;
    bool destroyed = false;
    CapturePtr capture;
    std::vector<NodePtr> tail; // what the next captured node depends on

    bool blocking() const {
        return kind == StreamKind::per_thread ||
               (kind == StreamKind::created && (flags & CU_STREAM_NON_BLOCKING) == 0);
    }
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
    CUevent handle = nullptr;
    std::shared_ptr<Context> ctx;
    unsigned flags = 0;
    OpPtr op; // the latest record
    CapturePtr capture;
    std::vector<NodePtr> nodes; // recorded inside a capture
};
using EventPtr = std::shared_ptr<Event>;

struct Context {
    std::uint64_t id = 0;
    CUcontext handle = nullptr;
    int device = 0;
    bool primary = false;
    unsigned flags = 0;
    bool alive = true;
    // A converted green context: streams of its own; memory, events, faults and the waits of frees
    // are its primary's.
    std::shared_ptr<Context> owner;
    CUgreenCtx green = nullptr;
    std::vector<std::shared_ptr<Context>> greens; // of a primary
    unsigned freeing = 0;                         // threads that wait inside a free of this context
    StreamPtr legacy;
    std::map<std::uint64_t, StreamPtr> per_thread;
    std::vector<StreamPtr> streams; // all kinds; destroyed ones while they have work
    OpPtr barrier;                  // the latest cuCtxWaitEvent
    Clock retired;                  // what destroyed streams did
    std::set<CapturePtr> captures;
    std::set<std::uint64_t> peers; // ids of contexts whose memory this one may use

    // Sticky.
    CUresult& fault() { return owner == nullptr ? fault_ : owner->fault_; }

  private:
    CUresult fault_ = CUDA_SUCCESS;
};
using ContextPtr = std::shared_ptr<Context>;

// The context that owns what this one allocates.
inline const ContextPtr& owner_of(const ContextPtr& ctx) {
    return ctx->owner == nullptr ? ctx : ctx->owner;
}

struct Pool {
    CUmemoryPool handle = nullptr;
    int device = 0;
    bool is_default = false;
    std::map<int, std::uint64_t> attributes;
    std::uint64_t used = 0;
    std::uint64_t used_high = 0;
    std::uint64_t reserved = 0;
    std::uint64_t reserved_high = 0;
    std::map<int, int> access;
};
using PoolPtr = std::shared_ptr<Pool>;

struct Device {
    explicit Device(std::size_t limit) : memory(limit) {}
    int index = 0;
    DeviceMemory memory;
    ContextPtr primary;
    unsigned primary_flags = 0;
    unsigned retained = 0; // outlives a reset
    PoolPtr default_pool;
    PoolPtr current_pool;
};

// Handles of one type. A destroyed handle's value is given out again first, as a real driver's is.
template <class Handle, class T>
class Handles {
  public:
    Handle add(const std::shared_ptr<T>& object) {
        if (unused_.empty()) {
            // Values are addresses of memory that nobody reads, so that they look like pointers.
            auto& block = blocks_.emplace_back(std::make_unique<std::uint64_t[]>(kBlock));
            for (std::size_t i = kBlock; i > 0; i -= kStep) {
                unused_.push_back(reinterpret_cast<Handle>(&block[i - kStep]));
            }
        }
        Handle h = unused_.back();
        unused_.pop_back();
        live_[h] = object;
        object->handle = h;
        return h;
    }
    std::shared_ptr<T> find(Handle h) const {
        const auto it = live_.find(h);
        return it == live_.end() ? nullptr : it->second;
    }
    bool remove(Handle h) {
        if (live_.erase(h) == 0) {
            return false;
        }
        unused_.push_back(h);
        return true;
    }
    const std::unordered_map<Handle, std::shared_ptr<T>>& all() const { return live_; }

  private:
    static constexpr std::size_t kBlock = 1024;
    static constexpr std::size_t kStep = 4;
    std::vector<std::unique_ptr<std::uint64_t[]>> blocks_;
    std::vector<Handle> unused_;
    std::unordered_map<Handle, std::shared_ptr<T>> live_;
};

} // namespace simcuda
