#include "shim/default_pools.h"

#include "shim/driver.h"
#include "shim/process.h"

#include <algorithm>
#include <array>
#include <vector>

namespace cachealloc::shim {

namespace {

constexpr std::size_t kDevices = 64;

// Peer access that we gave, or owe.
struct Access {
    CUdevice device; // whose memory
    CUdevice peer;
    CUcontext from; // null: owed until the peer has a primary context
    CUcontext to;
};
std::mutex g_mutex;
std::vector<Access>& accesses() {
    static auto* const list = new std::vector<Access>(); // immortal: used until the very end
    return *list;
}

CUresult give(Process& process, Access& access) {
    ContextPool* const owner = process.contexts.primary_of(access.device);
    if (owner == nullptr) return CUDA_SUCCESS; // what was served ended with its context
    const CurrentContext scope(access.from);
    const CUresult result = real.cuCtxEnablePeerAccess(owner->handle, 0);
    access.to = result == CUDA_SUCCESS ? owner->handle : nullptr;
    if (result == CUDA_SUCCESS) return process.contexts.peer_access_given(owner->handle);
    return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
}

} // namespace

DefaultPool* DefaultPool::of(CUdevice device) {
    static auto* const pools = [] { // immortal
        auto* const made = new std::array<DefaultPool, kDevices>();
        for (std::size_t i = 0; i < kDevices; ++i)
            (*made)[i].device_ = static_cast<CUdevice>(i);
        return made;
    }();
    const auto index = static_cast<std::size_t>(device);
    return device >= 0 && index < kDevices ? &(*pools)[index] : nullptr;
}

DefaultPool* DefaultPool::of(CUmemoryPool handle) {
    if (handle == nullptr) return nullptr;
    for (CUdevice device = 0; DefaultPool* const pool = of(device); ++device) {
        if (pool->handle() == handle) return pool;
    }
    return nullptr;
}

bool DefaultPool::serves() {
    State state = state_.load(std::memory_order_seq_cst);
    if (state == State::unknown) {
        const std::lock_guard lock(mutex_);
        state = state_.load(std::memory_order_relaxed);
        if (state == State::unknown) {
            state = ask();
            state_.store(state, std::memory_order_release);
        }
    }
    return state == State::ours;
}

// What the program did before the first stream-ordered call counts as well.
DefaultPool::State DefaultPool::ask() {
    CUmemoryPool handle = nullptr;
    CUmemoryPool current = nullptr;
    int devices = 0;
    if (!real.cuDeviceGetDefaultMemPool || !real.cuDeviceGetMemPool || !real.cuMemPoolGetAccess ||
        !real.cuMemPoolGetAttribute ||
        real.cuDeviceGetDefaultMemPool(&handle, device_) != CUDA_SUCCESS || handle == nullptr ||
        real.cuDeviceGetMemPool(&current, device_) != CUDA_SUCCESS || current != handle ||
        real.cuDeviceGetCount(&devices) != CUDA_SUCCESS) {
        return State::drivers;
    }
    handle_.store(handle, std::memory_order_release);
    for (CUdevice peer = 0; peer < devices; ++peer) {
        CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, peer};
        CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (peer != device_ && real.cuMemPoolGetAccess(&flags, handle, &location) == CUDA_SUCCESS &&
            flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            return State::drivers;
        }
    }
    for (const CUmemPool_attribute attribute :
         {CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
        int value = 1;
        if (real.cuMemPoolGetAttribute(handle, attribute, &value) == CUDA_SUCCESS) {
            note(attribute, value);
        }
    }
    return State::ours;
}

void DefaultPool::leave() {
    const std::lock_guard lock(mutex_);
    state_.store(State::drivers, std::memory_order_seq_cst);
}

void DefaultPool::note(CUmemPool_attribute attribute, int value) {
    if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) {
        reuse_finished_.store(value != 0, std::memory_order_relaxed);
    } else if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
        reuse_waiting_.store(value != 0, std::memory_order_relaxed);
    }
}

// The peer's primary context is held only for the call: that the shim has it alive must not be
// seen.
CUresult make_reachable(Process& process, CUdevice device, CUdevice peer) {
    const ContextPool* const owner = process.contexts.primary_of(device);
    if (owner == nullptr || !owner->pool.served_async()) return CUDA_SUCCESS;
    process.contexts.enter_finished_everywhere(true);
    unsigned int flags = 0;
    int active = 0;
    Access access{device, peer, nullptr, nullptr};
    CUresult result = CUDA_SUCCESS;
    if (real.cuDevicePrimaryCtxGetState(peer, &flags, &active) == CUDA_SUCCESS && active != 0 &&
        real.cuDevicePrimaryCtxRetain(&access.from, peer) == CUDA_SUCCESS) {
        result = give(process, access);
        real.cuDevicePrimaryCtxRelease_v2(peer);
    }
    const std::lock_guard lock(g_mutex);
    accesses().push_back(access);
    return result;
}

void primary_context_lives(Process& process, CUdevice device, CUcontext context) {
    const std::lock_guard lock(g_mutex);
    for (Access& access : accesses()) {
        if (access.peer != device || access.from == context) continue;
        access.from = context;
        give(process, access);
    }
}

bool claim_peer_access(CUcontext peer) {
    CUcontext current = nullptr;
    if (real.cuCtxGetCurrent(&current) != CUDA_SUCCESS) return false;
    const std::lock_guard lock(g_mutex);
    const auto found = std::find_if(accesses().begin(), accesses().end(), [&](const Access& one) {
        return one.from == current && one.to == peer;
    });
    if (found == accesses().end()) return false;
    found->to = nullptr;
    return true;
}

} // namespace cachealloc::shim
