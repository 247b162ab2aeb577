// Which pool belongs to which context.
//
// Invariant: one pool per context, told apart by the driver's context id, since handles come back.
// A converted green context belongs to its primary: context events on it would cover only its own
// streams, and its memory is the primary's. A pool whose context is gone is never used again.
#pragma once

#include "core/device_pool.h"
#include "shim/cuda_order.h"
#include "shim/cuda_source.h"
#include "shim/cuda_types.h"
#include "shim/overlap_marks.h"
#include "shim/recorded_pool.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace cachealloc::shim {

struct Process;

// One context's pool and its way to the driver. Immortal.
struct ContextPool {
    ContextPool(Process& process, CUcontext context, unsigned long long context_id,
                CUdevice context_device, OrderLevel level, Recorder* recorder,
                RecordedContext recorded_context);

    const CUcontext handle;
    const unsigned long long id;
    const CUdevice device;
    bool gone = false; // under Contexts' lock
    OverlapMarks overlaps;
    CudaSource source;
    CudaOrder order;
    RecordedPool recorded;
    DevicePool pool;
};

class Contexts {
  public:
    explicit Contexts(Process& process) : process_(process) {}

    // The current context's pool, made at its first use; null when there is no current context or
    // no pool can be had (the call goes to the driver then). One driver call (8 ns) and a
    // thread-local comparison, once known. Thread-safe.
    ContextPool* current();

    // The pool of a context that need not be current; null as above. Takes a lock.
    ContextPool* of(CUcontext context) { return look_up(context); }

    // Whether the context is its device's primary one, as far as its retains were seen; a device's
    // primary context, null if there is none. Take a lock.
    bool is_primary(const ContextPool& context);
    ContextPool* primary_of(CUdevice device);

    // Rises whenever a context ends.
    std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

    // The context whose pool serves `context`: the primary one for a converted green context.
    CUcontext pool_owner(CUcontext context) {
        const std::lock_guard lock(mutex_);
        return owner_of(context);
    }

    // Calls visit(ContextPool&) for every pool whose context lives.
    template <class Visit>
    void for_each(Visit visit) {
        const std::lock_guard lock(mutex_);
        for (ContextPool* const pool : pools_) {
            if (!pool->gone) visit(*pool);
        }
    }
    // The same for every pool that ever was, for statistics.
    template <class Visit>
    void for_each_ever(Visit visit) {
        const std::lock_guard lock(mutex_);
        for (ContextPool* const pool : pools_)
            visit(*pool);
    }

    // A context has come to life (a device's primary: at each retain). From the second one on every
    // pool steps down to level `finished`.
    void born(CUcontext context, CUdevice device, bool primary);

    // A green context was made, which retains the primary context of `device` and belongs to it;
    // one was converted; one was destroyed: returns the context it had been converted to, null if
    // it never was.
    void note_green(CUgreenCtx green, CUdevice device);
    void note_converted(CUcontext converted, CUgreenCtx green);
    CUcontext forget_green(CUgreenCtx green);
    // The device of a green context; false if it is not known.
    bool device_of(CUgreenCtx green, CUdevice* device);

    // The pools that a driver call is about to end: hidden at once, buried by ended(), shown again
    // by survived(). Either must follow. `context` null: the primary context of `device`. ended()
    // returns the contexts that are gone: a primary's green ones go with it.
    std::vector<ContextPool*> ending(CUcontext context, CUdevice device);
    std::vector<CUcontext> ended(const std::vector<ContextPool*>& pools, CUcontext context,
                                 CUdevice device);
    void survived(const std::vector<ContextPool*>& pools);

    // The driver has let the current context reach memory of `to`: what the pool of `to` has
    // mapped becomes reachable as well. On an error nothing has changed there.
    CUresult peer_access_given(CUcontext to);
    // The driver has taken that away again.
    void peer_access_taken(CUcontext to);

    // Every pool steps down to level `finished` (DevicePool::enter_finished()), those yet to come
    // start there.
    void enter_finished_everywhere(bool may_wait);
    // Every pool takes memory that can be exported from now on, those yet to come as well.
    void serve_from_segments_everywhere();

  private:
    struct Alive {
        CUcontext handle;
        CUdevice device;
        bool primary;
    };
    struct Green {
        CUgreenCtx green;
        CUdevice device;
        CUcontext converted;
    };

    ContextPool* look_up(CUcontext context);
    ContextPool* make(CUcontext context, unsigned long long id);
    CUcontext owner_of(CUcontext context);
    CUcontext primary_handle(CUdevice device) const; // null if none is known
    OrderLevel starting_level() const;
    CUresult set_access(CUcontext owner, CUdevice device, bool allowed);

    Process& process_;
    std::mutex mutex_;
    std::atomic<std::uint64_t> generation_{1}; // rises whenever a context ends: stale look-ups end
    std::atomic<bool> finished_everywhere_{false};
    std::atomic<bool> segments_everywhere_{false};
    std::vector<ContextPool*> pools_;
    std::vector<Alive> alive_;
    std::vector<Green> greens_;
};

} // namespace cachealloc::shim
