#include "shim/contexts.h"

#include "core/pool/host_pages.h"
#include "shim/driver.h"
#include "shim/log.h"
#include "shim/process.h"
#include "shim/report.h"

#include <algorithm>
#include <new>

namespace cachealloc::shim {

namespace {

struct Known {
    CUcontext context;
    std::uint64_t generation;
    ContextPool* pool;
};
thread_local Known t_known{};

} // namespace

ContextPool::ContextPool(Process& process, CUcontext context, unsigned long long context_id,
                         CUdevice context_device, OrderLevel level, Recorder* recorder,
                         RecordedContext recorded_context)
    : handle(context), id(context_id), device(context_device), source(process, *this),
      order(process, *this), recorded(recorder, recorded_context, source.mapped()),
      pool(process.map, process.arena, source, order, level, process.options,
           recorder != nullptr ? &recorded : nullptr) {}

ContextPool* Contexts::current() {
    CUcontext context = nullptr;
    if (real.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return nullptr;
    const std::uint64_t generation = generation_.load(std::memory_order_acquire);
    if (t_known.context == context && t_known.generation == generation) return t_known.pool;
    ContextPool* const pool = look_up(context);
    t_known = {context, generation, pool};
    return pool;
}

ContextPool* Contexts::look_up(CUcontext context) {
    const std::lock_guard lock(mutex_);
    const CUcontext owner = owner_of(context);
    unsigned long long id = 0;
    if (!real.cuCtxGetId || real.cuCtxGetId(owner, &id) != CUDA_SUCCESS) return nullptr;
    for (ContextPool* const pool : pools_) {
        if (!pool->gone && pool->id == id) return pool;
    }
    return make(owner, id);
}

bool Contexts::is_primary(const ContextPool& context) {
    const std::lock_guard lock(mutex_);
    return std::any_of(alive_.begin(), alive_.end(), [&](const Alive& alive) {
        return alive.primary && alive.handle == context.handle;
    });
}

ContextPool* Contexts::primary_of(CUdevice device) {
    const std::lock_guard lock(mutex_);
    for (const Alive& alive : alive_) {
        if (!alive.primary || alive.device != device) continue;
        for (ContextPool* const pool : pools_) {
            if (!pool->gone && pool->handle == alive.handle) return pool;
        }
    }
    return nullptr;
}

CUcontext Contexts::owner_of(CUcontext context) {
    const bool known = std::any_of(alive_.begin(), alive_.end(),
                                   [&](const Alive& alive) { return alive.handle == context; });
    if (known) return context;
    for (Green& green : greens_) {
        // A stream of a green context may be met before the program has converted it.
        if (green.converted == nullptr) real.cuCtxFromGreenCtx(&green.converted, green.green);
        if (green.converted != context) continue;
        const CUcontext primary = primary_handle(green.device);
        return primary == nullptr ? context : primary;
    }
    return context;
}

CUcontext Contexts::primary_handle(CUdevice device) const {
    for (const Alive& alive : alive_) {
        if (alive.primary && alive.device == device) return alive.handle;
    }
    return nullptr;
}

OrderLevel Contexts::starting_level() const {
    if (process_.options.order == OrderStart::wait) return OrderLevel::wait;
    if (process_.options.order == OrderStart::finished || alive_.size() > 1 ||
        finished_everywhere_.load(std::memory_order_acquire)) {
        return OrderLevel::finished;
    }
    return process_.total_order.holds() ? OrderLevel::ordered : OrderLevel::fenced;
}

ContextPool* Contexts::make(CUcontext context, unsigned long long id) {
    const CurrentContext scope(context);
    CUdevice device = 0;
    std::size_t total = 0;
    if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        real.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) {
        return nullptr;
    }
    // Whether the driver has context events cannot be tried out beside a capture, where nothing is
    // served anyhow.
    if (process_.capturing()) return nullptr;
    void* const memory = map_host_pages(sizeof(ContextPool));
    if (memory == nullptr) {
        log_once("pool-memory", LogLevel::warning,
                 "no host memory for a pool: allocations of this context go to the driver");
        return nullptr;
    }
    Recorder* const recorder = process_.recording.recorder();
    auto* const pool = new (memory) ContextPool(
        process_, context, id, device, starting_level(), recorder,
        recorder != nullptr ? process_.recording.contexts.of(context) : RecordedContext{});
    pool->source.set_total_bytes(total);
    if (!pool->order.works()) {
        pool->pool.fences().lower(OrderLevel::wait);
        log_once(
            "no-context-events", LogLevel::warning,
            "this driver has no context events (they came with CUDA 12.5): every cudaFree waits "
            "as natively; update the driver to have frees that do not");
    }
    if (segments_everywhere_.load(std::memory_order_acquire)) pool->pool.serve_from_segments();
    pools_.push_back(pool);
    logf(LogLevel::info, "device %d: a pool for context %llu, level %s", device, id,
         name_of(pool->pool.fences().level()));
    return pool;
}

void Contexts::born(CUcontext context, CUdevice device, bool primary) {
    bool several = false;
    {
        const std::lock_guard lock(mutex_);
        const bool known = std::any_of(alive_.begin(), alive_.end(), [&](const Alive& other) {
            return primary ? other.primary && other.device == device : other.handle == context;
        });
        if (known) return;
        alive_.push_back({context, device, primary});
        several = alive_.size() > 1;
    }
    if (several) enter_finished_everywhere(true);
}

void Contexts::note_green(CUgreenCtx green, CUdevice device) {
    CUcontext primary = nullptr; // alive as long as the green context is
    if (real.cuDevicePrimaryCtxRetain(&primary, device) == CUDA_SUCCESS) {
        real.cuDevicePrimaryCtxRelease_v2(device);
        born(primary, device, true);
    }
    const std::lock_guard lock(mutex_);
    greens_.push_back({green, device, nullptr});
}

void Contexts::note_converted(CUcontext converted, CUgreenCtx green) {
    const std::lock_guard lock(mutex_);
    for (Green& known : greens_) {
        if (known.green == green) known.converted = converted;
    }
    generation_.fetch_add(1, std::memory_order_acq_rel);
}

CUcontext Contexts::forget_green(CUgreenCtx green) {
    const std::lock_guard lock(mutex_);
    CUcontext converted = nullptr;
    std::erase_if(greens_, [&](const Green& known) {
        if (known.green != green) return false;
        converted = known.converted;
        return true;
    });
    generation_.fetch_add(1, std::memory_order_acq_rel); // the handles may come back
    return converted;
}

bool Contexts::device_of(CUgreenCtx green, CUdevice* device) {
    const std::lock_guard lock(mutex_);
    for (const Green& known : greens_) {
        if (known.green != green) continue;
        *device = known.device;
        return true;
    }
    return false;
}

std::vector<ContextPool*> Contexts::ending(CUcontext context, CUdevice device) {
    process_.contexts_ending.fetch_add(1, std::memory_order_seq_cst);
    std::vector<ContextPool*> pools;
    const std::lock_guard lock(mutex_);
    if (context == nullptr) context = primary_handle(device);
    process_.host_watch.visible.context_ends(context);
    for (ContextPool* const pool : pools_) {
        if (pool->gone || pool->handle != context) continue;
        pool->pool.kill();
        pools.push_back(pool);
    }
    return pools;
}

std::vector<CUcontext> Contexts::ended(const std::vector<ContextPool*>& pools, CUcontext context,
                                       CUdevice device) {
    std::vector<CUcontext> gone;
    {
        const std::lock_guard lock(mutex_);
        for (ContextPool* const pool : pools) {
            pool->gone = true;
            pool->pool.bury();
        }
        const bool primary = context == nullptr;
        if (primary) {
            context = primary_handle(device);
            std::erase_if(greens_, [&](const Green& green) {
                if (green.device != device) return false;
                if (green.converted != nullptr) gone.push_back(green.converted);
                return true;
            });
        }
        if (context != nullptr) gone.push_back(context);
        for (const CUcontext ended : gone)
            process_.host_watch.visible.context_ended(ended);
        std::erase_if(alive_, [&](const Alive& alive) {
            return primary ? alive.primary && alive.device == device : alive.handle == context;
        });
        generation_.fetch_add(1, std::memory_order_acq_rel);
    }
    for (ContextPool* const pool : pools)
        pool->source.mapped().context_ended();
    process_.contexts_ending.fetch_sub(1, std::memory_order_seq_cst);
    return gone;
}

void Contexts::survived(const std::vector<ContextPool*>& pools) {
    for (ContextPool* const pool : pools)
        pool->pool.revive();
    process_.contexts_ending.fetch_sub(1, std::memory_order_seq_cst);
}

CUresult Contexts::set_access(CUcontext owner, CUdevice device, bool allowed) {
    ContextPool* of_owner = nullptr;
    for_each([&](ContextPool& pool) {
        if (pool.handle == owner) of_owner = &pool;
    });
    return of_owner == nullptr ? CUDA_SUCCESS
                               : of_owner->source.mapped().set_access(device, allowed);
}

// First noted, then given: a piece that is mapped in between has it either way.
CUresult Contexts::peer_access_given(CUcontext to) {
    CUcontext from = nullptr;
    CUdevice device = 0;
    if (real.cuCtxGetCurrent(&from) != CUDA_SUCCESS || real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    const CUcontext owner = pool_owner(to);
    process_.peers.enabled(from, device, owner);
    const CUresult result = set_access(owner, device, true);
    if (result != CUDA_SUCCESS) process_.peers.disabled(from, device, owner);
    return result;
}

void Contexts::peer_access_taken(CUcontext to) {
    CUcontext from = nullptr;
    CUdevice device = 0;
    if (real.cuCtxGetCurrent(&from) != CUDA_SUCCESS || real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return;
    const CUcontext owner = pool_owner(to);
    if (process_.peers.disabled(from, device, owner)) set_access(owner, device, false);
}

void Contexts::enter_finished_everywhere(bool may_wait) {
    process_.total_order.leave();
    // After the first time no barrier settles anything, so there is nothing new to hold back.
    const bool before = finished_everywhere_.exchange(true, std::memory_order_acq_rel);
    if (before && !may_wait) return;
    if (!before) {
        log(LogLevel::info, "several contexts, peer access, IPC or stream memory operations: level "
                            "finished from now on");
    }
    std::vector<ContextPool*> pools;
    for_each([&](ContextPool& pool) { pools.push_back(&pool); });
    for (ContextPool* const pool : pools)
        pool->pool.enter_finished(may_wait);
}

void Contexts::serve_from_segments_everywhere() {
    if (segments_everywhere_.exchange(true, std::memory_order_acq_rel)) return;
    std::vector<ContextPool*> pools;
    for_each([&](ContextPool& pool) { pools.push_back(&pool); });
    for (ContextPool* const pool : pools)
        pool->pool.serve_from_segments();
}

} // namespace cachealloc::shim
