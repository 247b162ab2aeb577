#include "shim/graph_effects.h"

namespace cachealloc::shim {

namespace {

constexpr std::size_t kProbes = 16; // places of the table that a graph may be in

std::size_t hash(CUgraphExec graph) {
    return reinterpret_cast<std::uintptr_t>(graph) * 0x9E3779B97F4A7C15ULL >> 32;
}

} // namespace

GraphEffects::Entry* GraphEffects::find(CUgraphExec graph) {
    const std::size_t start = hash(graph);
    for (std::size_t i = 0; i < kProbes; ++i) {
        Entry& entry = entries_[(start + i) % kMost];
        if (entry.graph == graph) return &entry;
    }
    return nullptr;
}

void GraphEffects::learnt(CUgraphExec graph, GraphEffect effect) {
    const std::lock_guard lock(mutex_);
    if (Entry* const known = find(graph)) {
        known->effect = effect;
        return;
    }
    if (effect.host_visible && effect.records_events) return; // as if unknown
    const std::size_t start = hash(graph);
    for (std::size_t i = 0; i < kProbes; ++i) {
        Entry& entry = entries_[(start + i) % kMost];
        if (entry.graph != nullptr) continue;
        entry = {graph, effect};
        return;
    }
}

void GraphEffects::forget(CUgraphExec graph) {
    const std::lock_guard lock(mutex_);
    if (Entry* const known = find(graph)) *known = {};
}

GraphEffect GraphEffects::of(CUgraphExec graph) {
    const std::lock_guard lock(mutex_);
    const Entry* const known = find(graph);
    return known != nullptr ? known->effect : GraphEffect{};
}

} // namespace cachealloc::shim
