// Graphs: made by capture, instantiated, launched again and again.
#include <algorithm>

#include "graph.h"

using namespace simcuda;

std::map<CUgraphExec, std::shared_ptr<GraphExec>>& simcuda::execs() {
    static auto* const table = new std::map<CUgraphExec, std::shared_ptr<GraphExec>>;
    return *table;
}

namespace {

World& world() {
    return World::get();
}

} // namespace

bool simcuda::in_order(const Graph& g, std::vector<NodePtr>* ordered) {
    std::map<const Node*, NodePtr> done;
    std::vector<NodePtr> rest = g.nodes;
    while (!rest.empty()) {
        const auto stuck = std::stable_partition(rest.begin(), rest.end(), [&](const NodePtr& n) {
            return std::all_of(n->after.begin(), n->after.end(), [&](const NodePtr& before) {
                return done.count(before.get()) != 0 ||
                       std::find(g.nodes.begin(), g.nodes.end(), before) == g.nodes.end();
            });
        });
        if (stuck == rest.begin()) {
            return false;
        }
        for (auto it = rest.begin(); it != stuck; ++it) {
            auto copy = std::make_shared<Node>(**it);
            for (auto& before : copy->after) {
                const auto known = done.find(before.get());
                if (known != done.end()) {
                    before = known->second;
                }
            }
            done[it->get()] = copy;
            ordered->push_back(copy);
        }
        rest.erase(rest.begin(), stuck);
    }
    return true;
}

namespace {

// In place of each node that runs a graph: the nodes of that graph, and the node itself, empty,
// behind them.
bool flatten(const Graph& g, std::vector<NodePtr>* out) {
    std::vector<NodePtr> ordered;
    if (!in_order(g, &ordered)) {
        return false;
    }
    for (const auto& node : ordered) {
        if (node->child != nullptr) {
            std::vector<NodePtr> inner;
            if (!flatten(*node->child, &inner)) {
                return false;
            }
            const std::vector<NodePtr> before = node->after;
            for (const auto& n : inner) {
                n->after.insert(n->after.end(), before.begin(), before.end());
            }
            out->insert(out->end(), inner.begin(), inner.end());
            node->after.insert(node->after.end(), inner.begin(), inner.end());
        }
        out->push_back(node);
    }
    return true;
}

CUresult instantiate(CUgraphExec* out, CUgraph graph) {
    const GraphPtr g = world().graphs.find(graph);
    if (out == nullptr || g == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto exec = std::make_shared<GraphExec>();
    if (!flatten(*g, &exec->nodes)) {
        return CUDA_ERROR_INVALID_VALUE; // a cycle
    }
    *out = reinterpret_cast<CUgraphExec>(exec.get());
    execs()[*out] = exec;
    return CUDA_SUCCESS;
}

// Node by node behind what the stream holds; the stream goes on behind the last of them.
CUresult launch(bool pt, CUgraphExec handle, CUstream stream) {
    World& w = world();
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    const auto it = execs().find(handle);
    if (it == execs().end()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const std::shared_ptr<GraphExec> exec = it->second;
    if (s->capture != nullptr) {
        if (s->capture->invalidated) {
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        NodePtr node;
        SIM_TRY(add_node(s, Work{}, CU_GRAPH_NODE_TYPE_GRAPH, &node));
        Graph whole;
        whole.nodes = exec->nodes;
        node->child = std::make_shared<Graph>();
        in_order(whole, &node->child->nodes);
        w.graphs.add(node->child);
        return CUDA_SUCCESS;
    }
    Work first;
    first.label = "cuGraphLaunch";
    first.duration = 1000;
    OpPtr begin;
    SIM_TRY(submit(s, first, &begin));
    std::vector<OpPtr> before{begin, exec->last};
    std::map<const Node*, OpPtr> ops;
    std::vector<OpPtr> all{begin};
    // A node takes over the slot of a node that it comes behind, once; every other branch gets a
    // slot of its own, or the oracle would take branches for ordered.
    std::map<std::uint32_t, OpPtr> ends{{s->slot, begin}}; // the latest node of each slot
    for (const auto& node : exec->nodes) {
        std::vector<OpPtr> after = before;
        for (const auto& earlier : node->after) {
            const auto op = ops.find(earlier.get());
            if (op != ops.end()) {
                after.push_back(op->second);
            }
        }
        const auto free = std::find_if(ends.begin(), ends.end(), [&](const auto& end) {
            return std::find(after.begin(), after.end(), end.second) != after.end();
        });
        const std::uint32_t slot = free == ends.end() ? w.take_slot() : free->first;
        if (node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
            after.push_back(node->event->op);
        }
        Work work = node->work;
        work.label += " of a graph";
        const OpPtr op = w.submit_after(s->ctx, s, std::move(work), after, false, slot);
        if (node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
            node->event->op = op;
            node->event->capture = nullptr;
        }
        ops[node.get()] = op;
        ends[slot] = op;
        all.push_back(op);
    }
    for (const auto& [slot, op] : ends) {
        if (slot != s->slot) {
            w.give_slot(slot);
        }
    }
    Work last;
    last.label = "the end of a graph";
    last.duration = 0;
    exec->last = w.submit_after(s->ctx, s, std::move(last), all, true);
    return CUDA_SUCCESS;
}

CUresult upload(bool pt, CUgraphExec, CUstream stream) {
    StreamPtr s;
    return stream_of(stream, pt, &s);
}

CUresult with_params(bool, CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
    if (p == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    p->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return instantiate(exec, graph);
}

} // namespace

SIM_EXPORT CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) {
    SIM_ENTER(cuGraphCreate);
    if (graph == nullptr || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *graph = world().graphs.add(std::make_shared<Graph>());
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    SIM_ENTER(cuGraphDestroy);
    return world().graphs.remove(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode*, char*,
                                       size_t) {
    SIM_ENTER(cuGraphInstantiate);
    return instantiate(exec, graph);
}
SIM_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode*, char*,
                                          size_t) {
    SIM_ENTER(cuGraphInstantiate_v2);
    return instantiate(exec, graph);
}
SIM_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                unsigned long long) {
    SIM_ENTER(cuGraphInstantiateWithFlags);
    return instantiate(exec, graph);
}
SIM_TWINS(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz, with_params,
          (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p), exec, graph, p)
SIM_TWINS(cuGraphLaunch, cuGraphLaunch_ptsz, launch, (CUgraphExec exec, CUstream s), exec, s)
SIM_TWINS(cuGraphUpload, cuGraphUpload_ptsz, upload, (CUgraphExec exec, CUstream s), exec, s)

SIM_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    SIM_ENTER(cuGraphExecDestroy);
    return execs().erase(exec) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuGraphClone(CUgraph* out, CUgraph original) {
    SIM_ENTER(cuGraphClone);
    const GraphPtr g = world().graphs.find(original);
    auto copy = std::make_shared<Graph>();
    if (out == nullptr || g == nullptr || !in_order(*g, &copy->nodes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (const auto& node : copy->nodes) {
        node->handle = reinterpret_cast<CUgraphNode>(node.get());
    }
    *out = world().graphs.add(copy);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph,
                                         CUgraphExecUpdateResultInfo* info) {
    SIM_ENTER(cuGraphExecUpdate_v2);
    const auto exec = execs().find(handle);
    const GraphPtr g = world().graphs.find(graph);
    std::vector<NodePtr> nodes;
    if (exec == execs().end() || g == nullptr || info == nullptr || !flatten(*g, &nodes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *info = CUgraphExecUpdateResultInfo{};
    if (nodes.size() != exec->second->nodes.size()) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i]->type != exec->second->nodes[i]->type) {
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
            info->errorNode = nodes[i]->handle;
            return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
    }
    exec->second->nodes = nodes;
    info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
    SIM_ENTER(cuGraphGetNodes);
    const GraphPtr g = world().graphs.find(graph);
    if (g == nullptr || count == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (nodes != nullptr) {
        *count = std::min(*count, g->nodes.size());
        for (std::size_t i = 0; i < *count; ++i) {
            nodes[i] = g->nodes[i]->handle;
        }
    } else {
        *count = g->nodes.size();
    }
    return CUDA_SUCCESS;
}
