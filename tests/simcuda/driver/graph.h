// What the files about graphs share.
#pragma once

#include "guard.h"

namespace simcuda {

std::map<CUgraphExec, std::shared_ptr<GraphExec>>& execs();

// The nodes, each behind those it depends on, as copies: later changes of the graph do not reach an
// executable one. False if there is a cycle.
bool in_order(const Graph& g, std::vector<NodePtr>* ordered);

NodePtr node_of(const Graph& g, CUgraphNode handle);

// Calls `build` with a stream that captures into the graph behind `after`. No stream of the world,
// so that nothing else sees it.
template <class Build>
CUresult capture_into(const GraphPtr& g, const std::vector<NodePtr>& after, Build build) {
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    const auto s = std::make_shared<Stream>();
    s->ctx = ctx;
    s->capture = std::make_shared<Capture>();
    s->capture->graph = g;
    s->tail = after;
    return build(s);
}

} // namespace simcuda
