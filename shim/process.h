// What the preload keeps for the whole process, made at the first CUDA call.
//
// Invariant: until that call nothing of it exists, and once made it is never destroyed, so it
// serves threads that outlive main(). In a forked child it is switched off for good: CUDA does not
// survive a fork, and every call goes to the driver.
#pragma once

#include "core/options.h"
#include "core/order/capture_gate.h"
#include "core/pool/address_map.h"
#include "core/pool/block_arena.h"
#include "shim/contexts.h"
#include "shim/host_watch.h"
#include "shim/peer_access.h"
#include "shim/process_memory.h"
#include "shim/recording.h"
#include "shim/stream_use.h"
#include "shim/total_order.h"

#include <atomic>
#include <cstdint>

namespace cachealloc::shim {

// How often the driver's own functions were called on behalf of allocation, and for how long.
struct DriverCalls {
    std::atomic<std::uint64_t> alloc;       // cuMemAlloc
    std::atomic<std::uint64_t> free;        // cuMemFree
    std::atomic<std::uint64_t> ipc_exports; // cuIpcGetMemHandle
    std::atomic<std::uint64_t> passed;      // of both: those that the pool did not take on
    std::atomic<std::uint64_t> alloc_ns;    // spent in them
    std::atomic<std::uint64_t> free_ns;
    MappingCalls mapping;
};

struct Process {
    explicit Process(const Options& parsed)
        : options(parsed), recording(*this), contexts(*this), total_order(*this),
          host_watch(*this, gate, parsed.free_mode == FreeMode::automatic) {}

    const Options options;
    AddressMap map;
    BlockArena arena;
    CaptureGate gate;
    Recording recording;
    ProcessMemory memory;
    PeerAccess peers;
    Contexts contexts;
    DriverCalls calls{};
    TotalOrder total_order;
    StreamUse stream_use;
    HostWatch host_watch;
    // Contexts that are just ending, and may yet live on.
    std::atomic<std::int32_t> contexts_ending{0};

    // Whether a call must step aside because a stream capture is open anywhere in the process.
    bool capturing() const { return gate.open() != 0 && rule_on(Rule::capture_aside); }
};

// The process state; starts it at the first call (parses CACHEALLOC_CONF, says once what is wrong
// with it, and with strict:True ends the process with status 2). Null in a forked child, and while
// it is being made by a call further up the same thread. Thread-safe; a load once started.
Process* process();

} // namespace cachealloc::shim
