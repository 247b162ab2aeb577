// Stream capture: what it forbids, how it spreads, and how work becomes nodes of a graph.
#include <algorithm>

#include "guard.h"

namespace simcuda {

void invalidate(const CapturePtr& capture) {
    capture->invalidated = true;
}

void leave_capture(const CapturePtr& capture) {
    World& w = World::get();
    for (Stream* s : capture->streams) {
        s->capture = nullptr;
        s->tail.clear();
        s->ctx->captures.erase(capture);
    }
    w.captures.erase(std::remove(w.captures.begin(), w.captures.end(), capture), w.captures.end());
}

CUresult forbid_while_capturing(bool others) {
    const ThreadState& me = self();
    if (me.mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    bool forbidden = false;
    for (const auto& capture : World::get().captures) {
        const bool mine = capture->thread == me.serial;
        const bool in_the_way = mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                     : others && me.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (in_the_way) {
            invalidate(capture);
            forbidden = true;
        }
    }
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult forbid_implicit(const StreamPtr& s) {
    CUresult result = CUDA_SUCCESS;
    if (s->kind != StreamKind::legacy) {
        return result;
    }
    for (const auto& capture : s->ctx->captures) {
        for (const Stream* captured : capture->streams) {
            if (captured->blocking()) {
                invalidate(capture);
                result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
        }
    }
    return result;
}

CUresult forbid_context_captures(const ContextPtr& ctx) {
    std::set<CapturePtr> open = ctx->captures;
    for (const auto& green : ctx->greens) {
        open.insert(green->captures.begin(), green->captures.end());
    }
    for (const auto& capture : open) {
        invalidate(capture);
    }
    return open.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUgraphNodeType node_type(const Work& work) {
    if (work.kernel) {
        return CU_GRAPH_NODE_TYPE_KERNEL;
    }
    if (work.host_code) {
        return CU_GRAPH_NODE_TYPE_HOST;
    }
    if (work.label.rfind("cuMemset", 0) == 0) {
        return CU_GRAPH_NODE_TYPE_MEMSET;
    }
    if (work.label == "cuMemAllocAsync") {
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    }
    if (work.label == "cuMemFreeAsync") {
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    }
    return work.accesses.empty() ? CU_GRAPH_NODE_TYPE_EMPTY : CU_GRAPH_NODE_TYPE_MEMCPY;
}

CUresult add_node(const StreamPtr& s, Work work, CUgraphNodeType type, NodePtr* out) {
    if (s->capture->invalidated) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    const auto node = std::make_shared<Node>();
    node->work = std::move(work);
    node->after = s->tail;
    node->type = type;
    node->handle = reinterpret_cast<CUgraphNode>(node.get());
    s->capture->graph->nodes.push_back(node);
    s->tail = {node};
    if (out != nullptr) {
        *out = node;
    }
    return CUDA_SUCCESS;
}

namespace {

World& world() {
    return World::get();
}

void reach(const NodePtr& node, std::set<const Node*>& seen) {
    if (seen.insert(node.get()).second) {
        for (const auto& before : node->after) {
            reach(before, seen);
        }
    }
}

// Whether all that other streams captured comes before the origin's last node.
bool joined(const Capture& capture) {
    std::set<const Node*> seen;
    for (const auto& node : capture.origin->tail) {
        reach(node, seen);
    }
    for (const Stream* s : capture.streams) {
        for (const auto& node : s->tail) {
            if (s != capture.origin && seen.count(node.get()) == 0) {
                return false;
            }
        }
    }
    return true;
}

CUresult begin(const StreamPtr& s, CUstreamCaptureMode mode, GraphPtr graph,
               std::vector<NodePtr> after) {
    World& w = world();
    if (s->kind == StreamKind::legacy) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (s->capture != nullptr) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pass_free_gate(s->ctx);
    const auto capture = std::make_shared<Capture>();
    capture->id = ++w.next_capture;
    capture->mode = mode;
    capture->thread = self().serial;
    capture->origin = s.get();
    capture->streams.insert(s.get());
    capture->graph = graph;
    if (graph == nullptr) {
        capture->graph = std::make_shared<Graph>();
        w.graphs.add(capture->graph);
    }
    s->capture = capture;
    s->tail = std::move(after);
    s->ctx->captures.insert(capture);
    w.captures.push_back(capture);
    return CUDA_SUCCESS;
}

CUresult begin_capture(bool per_thread, CUstream stream, CUstreamCaptureMode mode) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, per_thread, &s));
    return begin(s, mode, nullptr, {});
}

CUresult begin_to_graph(bool per_thread, CUstream stream, CUgraph graph,
                        const CUgraphNode* dependencies, size_t count, CUstreamCaptureMode mode) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, per_thread, &s));
    const GraphPtr g = world().graphs.find(graph);
    if (g == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<NodePtr> after;
    for (std::size_t i = 0; i < count; ++i) {
        for (const auto& node : g->nodes) {
            if (node->handle == dependencies[i]) {
                after.push_back(node);
            }
        }
    }
    return begin(s, mode, g, std::move(after));
}

CUresult end_capture(bool per_thread, CUstream stream, CUgraph* out) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, per_thread, &s));
    if (out != nullptr) {
        *out = nullptr;
    }
    const CapturePtr capture = s->capture;
    if (capture == nullptr) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != self().serial) {
        leave_capture(capture); // the attempt ends it, as measured
        world().graphs.remove(capture->graph->handle);
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    if (capture->origin != s.get()) {
        invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    const bool valid = !capture->invalidated;
    const bool whole = joined(*capture);
    leave_capture(capture);
    if (!valid || !whole) {
        world().graphs.remove(capture->graph->handle);
        return valid ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (out != nullptr) {
        *out = capture->graph->handle;
    }
    return CUDA_SUCCESS;
}

CUresult is_capturing(bool per_thread, CUstream stream, CUstreamCaptureStatus* status) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, per_thread, &s));
    if (status == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (s->kind == StreamKind::legacy) {
        for (const auto& capture : s->ctx->captures) {
            for (const Stream* captured : capture->streams) {
                if (captured->blocking()) {
                    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                }
            }
        }
    }
    *status = s->capture == nullptr     ? CU_STREAM_CAPTURE_STATUS_NONE
              : s->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                        : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult capture_info(bool per_thread, CUstream stream, CUstreamCaptureStatus* status,
                      cuuint64_t* id, CUgraph* graph, const CUgraphNode** dependencies,
                      size_t* count) {
    SIM_TRY(is_capturing(per_thread, stream, status));
    StreamPtr s;
    SIM_TRY(stream_of(stream, per_thread, &s));
    static thread_local std::vector<CUgraphNode> nodes; // the caller reads it before the next call
    nodes.clear();
    for (const auto& node : s->tail) {
        nodes.push_back(node->handle);
    }
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return CUDA_SUCCESS;
    }
    if (id != nullptr) {
        *id = s->capture->id;
    }
    if (graph != nullptr) {
        *graph = s->capture->graph->handle;
    }
    if (dependencies != nullptr) {
        *dependencies = nodes.data();
    }
    if (count != nullptr) {
        *count = nodes.size();
    }
    return CUDA_SUCCESS;
}

CUresult update_dependencies(bool per_thread, CUstream stream, CUgraphNode* dependencies,
                             size_t count, unsigned flags) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, per_thread, &s));
    if (s->capture == nullptr) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
        s->tail.clear();
    }
    for (std::size_t i = 0; i < count; ++i) {
        for (const auto& node : s->capture->graph->nodes) {
            if (node->handle == dependencies[i]) {
                s->tail.push_back(node);
            }
        }
    }
    return CUDA_SUCCESS;
}

} // namespace
} // namespace simcuda

using namespace simcuda;

SIM_TWINS(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz, begin_capture,
          (CUstream s, CUstreamCaptureMode mode), s, mode)
SIM_TWINS(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz, begin_to_graph,
          (CUstream s, CUgraph g, const CUgraphNode* deps, const CUgraphEdgeData*, size_t n,
           CUstreamCaptureMode mode),
          s, g, deps, n, mode)
SIM_TWINS(cuStreamEndCapture, cuStreamEndCapture_ptsz, end_capture, (CUstream s, CUgraph* g), s, g)
SIM_TWINS(cuStreamIsCapturing, cuStreamIsCapturing_ptsz, is_capturing,
          (CUstream s, CUstreamCaptureStatus* status), s, status)
SIM_TWINS(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz, capture_info,
          (CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
           const CUgraphNode** deps, size_t* n),
          s, status, id, graph, deps, n)
SIM_TWINS(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz,
          update_dependencies, (CUstream s, CUgraphNode* deps, size_t n, unsigned int flags), s,
          deps, n, flags)
SIM_TWINS(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz,
          update_dependencies,
          (CUstream s, CUgraphNode* deps, const CUgraphEdgeData*, size_t n, unsigned int flags), s,
          deps, n, flags)

static CUresult capture_info_edges(bool per_thread, CUstream s, CUstreamCaptureStatus* status,
                                   cuuint64_t* id, CUgraph* graph, const CUgraphNode** deps,
                                   const CUgraphEdgeData** edges, size_t* n) {
    if (edges != nullptr) {
        *edges = nullptr;
    }
    return capture_info(per_thread, s, status, id, graph, deps, n);
}
SIM_TWINS(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz, capture_info_edges,
          (CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
           const CUgraphNode** deps, const CUgraphEdgeData** edges, size_t* n),
          s, status, id, graph, deps, edges, n)

SIM_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    SIM_ENTER_STATE(cuThreadExchangeStreamCaptureMode);
    if (mode == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(*mode, self().mode);
    return CUDA_SUCCESS;
}
