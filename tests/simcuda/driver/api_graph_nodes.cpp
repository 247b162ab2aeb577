// Graphs built node by node. A node is what the same call would capture: each is submitted to a
// stream of its own that captures into the graph behind the wanted nodes.
#include <algorithm>

#include "copy.h"
#include "graph.h"
#include "launch.h"

using namespace simcuda;

namespace {

World& world() {
    return World::get();
}

// Calls `build` with a stream that captures into the graph; its last node is the new one.
template <class Build>
CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
             Build build) {
    const GraphPtr g = world().graphs.find(graph);
    if (out == nullptr || g == nullptr || (after == nullptr && count > 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<NodePtr> behind;
    for (std::size_t i = 0; i < count; ++i) {
        const NodePtr before = node_of(*g, after[i]);
        if (before == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        behind.push_back(before);
    }
    const std::size_t had = g->nodes.size();
    const CUresult built = capture_into(g, behind, [&](const StreamPtr& s) {
        const CUresult result = build(s);
        // A copy of nothing is a node as well.
        return result == CUDA_SUCCESS && g->nodes.size() == had
                   ? add_node(s, Work{}, CU_GRAPH_NODE_TYPE_EMPTY)
                   : result;
    });
    if (built != CUDA_SUCCESS) {
        return built;
    }
    *out = g->nodes.back()->handle;
    return CUDA_SUCCESS;
}

CUresult connect(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
    const GraphPtr g = world().graphs.find(graph);
    if (g == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const NodePtr before = node_of(*g, from[i]);
        const NodePtr behind = node_of(*g, to[i]);
        if (before == nullptr || behind == nullptr || before == behind) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        behind->after.push_back(before);
    }
    return CUDA_SUCCESS;
}

CUresult add_event(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                   CUevent event, CUgraphNodeType type) {
    const EventPtr e = world().events.find(event);
    if (e == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add(out, graph, after, count, [&](const StreamPtr& s) {
        NodePtr node;
        SIM_TRY(add_node(s, Work{}, type, &node));
        node->event = e;
        return CUDA_SUCCESS;
    });
}

} // namespace

NodePtr simcuda::node_of(const Graph& g, CUgraphNode handle) {
    for (const auto& node : g.nodes) {
        if (node->handle == handle) {
            return node;
        }
    }
    return nullptr;
}

SIM_EXPORT CUresult cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph,
                                              const CUgraphNode* after, size_t count,
                                              CUevent event) {
    SIM_ENTER(cuGraphAddEventRecordNode);
    return add_event(out, graph, after, count, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}
SIM_EXPORT CUresult cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph,
                                            const CUgraphNode* after, size_t count, CUevent event) {
    SIM_ENTER(cuGraphAddEventWaitNode);
    return add_event(out, graph, after, count, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

SIM_EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                        size_t count) {
    SIM_ENTER(cuGraphAddEmptyNode);
    return add(out, graph, after, count, [](const StreamPtr& s) {
        Work work;
        work.duration = 0;
        return add_node(s, work, CU_GRAPH_NODE_TYPE_EMPTY);
    });
}

SIM_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph,
                                            const CUgraphNode* after, size_t count,
                                            const CUDA_KERNEL_NODE_PARAMS_v2* p) {
    SIM_ENTER(cuGraphAddKernelNode_v2);
    if (p == nullptr || p->extra != nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add(out, graph, after, count, [p](const StreamPtr& s) {
        const Shape shape{{p->gridDimX, p->gridDimY, p->gridDimZ},
                          {p->blockDimX, p->blockDimY, p->blockDimZ}};
        return launch(s, p->func, shape, p->kernelParams);
    });
}

SIM_EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                         size_t count, const CUDA_MEMCPY3D* p, CUcontext) {
    SIM_ENTER(cuGraphAddMemcpyNode);
    if (p == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add(out, graph, after, count,
               [p](const StreamPtr& s) { return copy_volume(s, *p, "the copy", false); });
}

SIM_EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                         size_t count, const CUDA_MEMSET_NODE_PARAMS* p,
                                         CUcontext) {
    SIM_ENTER(cuGraphAddMemsetNode);
    if (p == nullptr || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add(out, graph, after, count, [p](const StreamPtr& s) {
        return fill(s, "cuMemset", p->dst, p->pitch, p->value, p->elementSize, p->width, p->height);
    });
}

SIM_EXPORT CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                       size_t count, const CUDA_HOST_NODE_PARAMS* p) {
    SIM_ENTER(cuGraphAddHostNode);
    if (p == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add(out, graph, after, count,
               [p](const StreamPtr& s) { return call_host(s, p->fn, p->userData); });
}

SIM_EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph,
                                             const CUgraphNode* after, size_t count,
                                             CUgraph child) {
    SIM_ENTER(cuGraphAddChildGraphNode);
    const GraphPtr inner = world().graphs.find(child);
    if (inner == nullptr || child == graph) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return add(out, graph, after, count, [&inner](const StreamPtr& s) {
        NodePtr node;
        SIM_TRY(add_node(s, Work{}, CU_GRAPH_NODE_TYPE_GRAPH, &node));
        node->child = std::make_shared<Graph>();
        if (!in_order(*inner, &node->child->nodes)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (const auto& copy : node->child->nodes) {
            copy->handle = reinterpret_cast<CUgraphNode>(copy.get());
        }
        world().graphs.add(node->child);
        return CUDA_SUCCESS;
    });
}

SIM_EXPORT CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from,
                                           const CUgraphNode* to, size_t count) {
    SIM_ENTER(cuGraphAddDependencies);
    return connect(graph, from, to, count);
}
SIM_EXPORT CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                              const CUgraphNode* to, const CUgraphEdgeData*,
                                              size_t count) {
    SIM_ENTER(cuGraphAddDependencies_v2);
    return connect(graph, from, to, count);
}

SIM_EXPORT CUresult cuGraphDestroyNode(CUgraphNode handle) {
    SIM_ENTER(cuGraphDestroyNode);
    for (const auto& [graph, g] : world().graphs.all()) {
        const NodePtr node = node_of(*g, handle);
        if (node == nullptr) {
            continue;
        }
        g->nodes.erase(std::find(g->nodes.begin(), g->nodes.end(), node));
        for (const auto& other : g->nodes) {
            auto& after = other->after;
            after.erase(std::remove(after.begin(), after.end(), node), after.end());
        }
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}
