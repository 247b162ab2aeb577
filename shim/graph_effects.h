// What launching an executable graph may do beside computing. Learnt when it is instantiated.
//
// Invariant: a graph about which nothing is known, or no longer, may do everything.
// Thread-safe; nothing here calls CUDA.
#pragma once

#include "shim/cuda_types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace cachealloc::shim {

struct GraphEffect {
    bool host_visible = true;   // copies to the host, host functions
    bool records_events = true; // events stand for something else after the launch
};

class GraphEffects {
  public:
    void learnt(CUgraphExec graph, GraphEffect effect);
    void forget(CUgraphExec graph);
    GraphEffect of(CUgraphExec graph);

    static constexpr std::size_t kMost = 1024;

  private:
    struct Entry {
        CUgraphExec graph = nullptr;
        GraphEffect effect;
    };
    Entry* find(CUgraphExec graph);

    std::mutex mutex_;
    std::array<Entry, kMost> entries_{};
};

} // namespace cachealloc::shim
