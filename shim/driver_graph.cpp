// Executable graphs: what launching one may do is learnt from its nodes when it is instantiated.
#include "shim/driver.h"
#include "shim/process.h"
#include "shim/room.h"
#include "shim/submit.h"

#include <vector>

namespace cachealloc::shim {

namespace {

constexpr std::size_t kMostNodes = 65536; // of more, nothing is known
constexpr int kMostLevels = 8;            // of graphs within graphs

void add_effect(CUgraphNode node, CUgraphNodeType type, const HostWatch& watch, int level,
                GraphEffect& effect);

// Everything, where the driver does not tell.
void add_effects(CUgraph graph, const HostWatch& watch, int level, GraphEffect& effect) {
    std::size_t count = 0;
    if (level == kMostLevels || !real.cuGraphGetNodes || !real.cuGraphNodeGetType ||
        real.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count > kMostNodes) {
        effect = {};
        return;
    }
    std::vector<CUgraphNode> nodes(count);
    if (count != 0 && real.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) {
        effect = {};
        return;
    }
    for (std::size_t i = 0; i < count && i < nodes.size(); ++i) {
        CUgraphNodeType type{};
        if (real.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS) {
            effect = {};
            return;
        }
        add_effect(nodes[i], type, watch, level, effect);
        if (effect.host_visible && effect.records_events) return;
    }
}

void add_effect(CUgraphNode node, CUgraphNodeType type, const HostWatch& watch, int level,
                GraphEffect& effect) {
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        CUDA_MEMCPY3D copy{};
        effect.host_visible = effect.host_visible || !real.cuGraphMemcpyNodeGetParams ||
                              real.cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS ||
                              watch.may_be_host(copy.dstMemoryType, copy.dstDevice);
        return;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH: {
        CUgraph child = nullptr;
        if (!real.cuGraphChildGraphNodeGetGraph ||
            real.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS) {
            effect = {};
        } else {
            add_effects(child, watch, level + 1, effect);
        }
        return;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: // others may go on and tell the host
        effect.host_visible = true;
        return;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        effect.records_events = true;
        return;
    }
    effect = {}; // conditional nodes, memory operations and what is yet to come
}

GraphEffect effect_of(CUgraph graph, const HostWatch& watch) {
    GraphEffect effect{false, false};
    add_effects(graph, watch, 0, effect);
    return effect;
}

template <class Call>
CUresult instantiate(const CUgraphExec* executable, CUgraph graph, Call call) {
    const CUresult result = with_room(call);
    Process* const state = process();
    if (result == CUDA_SUCCESS && state != nullptr && state->host_watch.on()) {
        state->host_watch.graphs.learnt(*executable, effect_of(graph, state->host_watch));
    }
    return result;
}

// Nothing is known of the executable while it changes; `after` says what holds then.
template <class Call, class After>
CUresult change(CUgraphExec executable, Call call, After after) {
    Process* const state = process();
    if (state == nullptr || !state->host_watch.on()) return call();
    state->host_watch.graphs.forget(executable);
    const CUresult result = call();
    if (result == CUDA_SUCCESS) after(*state);
    return result;
}

template <class Call>
CUresult change(CUgraphExec executable, Call call) {
    return change(executable, call, [](Process&) {});
}

template <class Call>
CUresult launch(Entry entry, CUgraphExec executable, CUstream stream, bool per_thread_api,
                Call call) {
    look_at_submit(entry, stream, per_thread_api);
    Process* const state = process();
    if (state == nullptr || !state->host_watch.on()) return call();
    HostWatch& watch = state->host_watch;
    const GraphEffect effect = watch.graphs.of(executable);
    if (effect.records_events) watch.events_recorded_unseen();
    const CUresult result = call();
    if (result == CUDA_SUCCESS && effect.host_visible) watch.submitted(stream, per_thread_api);
    return result;
}

} // namespace

CUresult hook_cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, CUgraphNode* error_node,
                                 char* log, std::size_t log_bytes) {
    return instantiate(executable, graph, [&] {
        return real.cuGraphInstantiate(executable, graph, error_node, log, log_bytes);
    });
}

CUresult hook_cuGraphInstantiate_v2(CUgraphExec* executable, CUgraph graph, CUgraphNode* error_node,
                                    char* log, std::size_t log_bytes) {
    return instantiate(executable, graph, [&] {
        return real.cuGraphInstantiate_v2(executable, graph, error_node, log, log_bytes);
    });
}

CUresult hook_cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                          unsigned long long flags) {
    return instantiate(executable, graph,
                       [&] { return real.cuGraphInstantiateWithFlags(executable, graph, flags); });
}

CUresult hook_cuGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
    return instantiate(executable, graph, [&] {
        return real.cuGraphInstantiateWithParams(executable, graph, params);
    });
}

CUresult hook_cuGraphInstantiateWithParams_ptsz(CUgraphExec* executable, CUgraph graph,
                                                CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
    return instantiate(executable, graph, [&] {
        return real.cuGraphInstantiateWithParams_ptsz(executable, graph, params);
    });
}

CUresult hook_cuGraphExecDestroy(CUgraphExec executable) {
    return change(executable, [&] { return real.cuGraphExecDestroy(executable); });
}

CUresult hook_cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphNode* error_node,
                                CUgraphExecUpdateResult* update) {
    return change(
        executable, [&] { return real.cuGraphExecUpdate(executable, graph, error_node, update); },
        [&](Process& state) {
            state.host_watch.graphs.learnt(executable, effect_of(graph, state.host_watch));
        });
}

CUresult hook_cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph,
                                   CUgraphExecUpdateResultInfo* update) {
    return change(
        executable, [&] { return real.cuGraphExecUpdate_v2(executable, graph, update); },
        [&](Process& state) {
            state.host_watch.graphs.learnt(executable, effect_of(graph, state.host_watch));
        });
}

CUresult hook_cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                             const CUDA_MEMCPY3D* copy, CUcontext context) {
    return change(executable, [&] {
        return real.cuGraphExecMemcpyNodeSetParams(executable, node, copy, context);
    });
}

CUresult hook_cuGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                                 CUgraph child) {
    return change(executable,
                  [&] { return real.cuGraphExecChildGraphNodeSetParams(executable, node, child); });
}

CUresult hook_cuGraphExecNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                       CUgraphNodeParams* params) {
    return change(executable,
                  [&] { return real.cuGraphExecNodeSetParams(executable, node, params); });
}

CUresult hook_cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    return launch(Entry::cuGraphLaunch, executable, stream, false,
                  [&] { return real.cuGraphLaunch(executable, stream); });
}

CUresult hook_cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream) {
    return launch(Entry::cuGraphLaunch_ptsz, executable, stream, true,
                  [&] { return real.cuGraphLaunch_ptsz(executable, stream); });
}

} // namespace cachealloc::shim
