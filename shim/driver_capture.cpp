// Stream capture: the pool steps aside while one is open anywhere in the process.
#include "shim/captures.h"
#include "shim/driver.h"

namespace cachealloc::shim {

namespace {

// The stream that a null handle means to a _ptsz entry point.
CUstream per_thread(CUstream stream) {
    return stream == nullptr ? kStreamPerThread : stream;
}

} // namespace

CUresult hook_cuStreamBeginCapture(CUstream stream) {
    return Captures::begin(stream, [&] { return real.cuStreamBeginCapture(stream); });
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream stream) {
    return Captures::begin(per_thread(stream),
                           [&] { return real.cuStreamBeginCapture_ptsz(stream); });
}

CUresult hook_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return Captures::begin(stream, [&] { return real.cuStreamBeginCapture_v2(stream, mode); });
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
    return Captures::begin(per_thread(stream),
                           [&] { return real.cuStreamBeginCapture_v2_ptsz(stream, mode); });
}

CUresult hook_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                          const CUgraphEdgeData* edges, std::size_t count,
                                          CUstreamCaptureMode mode) {
    return Captures::begin(stream, [&] {
        return real.cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode);
    });
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                               const CUgraphNode* nodes,
                                               const CUgraphEdgeData* edges, std::size_t count,
                                               CUstreamCaptureMode mode) {
    return Captures::begin(per_thread(stream), [&] {
        return real.cuStreamBeginCaptureToGraph_ptsz(stream, graph, nodes, edges, count, mode);
    });
}

CUresult hook_cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    const CUresult result = real.cuStreamEndCapture(stream, graph);
    Captures::maybe_ended(stream);
    return result;
}

CUresult hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
    const CUresult result = real.cuStreamEndCapture_ptsz(stream, graph);
    Captures::maybe_ended(per_thread(stream));
    return result;
}

} // namespace cachealloc::shim
