// What nodes of graphs say of themselves, and what they can be changed to.
#include "copy.h"
#include "graph.h"
#include "launch.h"

using namespace simcuda;

namespace {

NodePtr find_node(CUgraphNode handle) {
    for (const auto& [graph, g] : World::get().graphs.all()) {
        if (const NodePtr node = node_of(*g, handle)) {
            return node;
        }
    }
    return nullptr;
}

NodePtr find_node(CUgraphExec handle, CUgraphNode node) {
    const auto exec = execs().find(handle);
    if (exec == execs().end()) {
        return nullptr;
    }
    for (const auto& n : exec->second->nodes) {
        if (n->handle == node) {
            return n;
        }
    }
    return nullptr;
}

// Gives the node the work that `build` submits.
template <class Build>
CUresult change(const NodePtr& node, CUgraphNodeType type, Build build) {
    if (node == nullptr || node->type != type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto scratch = std::make_shared<Graph>();
    SIM_TRY(capture_into(scratch, {}, build));
    if (scratch->nodes.size() != 1 || scratch->nodes.front()->type != type) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    node->work = scratch->nodes.front()->work;
    return CUDA_SUCCESS;
}

CUresult change_copy(const NodePtr& node, const CUDA_MEMCPY3D* p) {
    if (p == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return change(node, CU_GRAPH_NODE_TYPE_MEMCPY,
                  [p](const StreamPtr& s) { return copy_volume(s, *p, "the copy", false); });
}

CUresult change_host(const NodePtr& node, const CUDA_HOST_NODE_PARAMS* p) {
    if (p == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return change(node, CU_GRAPH_NODE_TYPE_HOST,
                  [p](const StreamPtr& s) { return call_host(s, p->fn, p->userData); });
}

CUresult change_kernel(const NodePtr& node, const CUDA_KERNEL_NODE_PARAMS_v2* p) {
    if (p == nullptr || p->extra != nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return change(node, CU_GRAPH_NODE_TYPE_KERNEL, [p](const StreamPtr& s) {
        const Shape shape{{p->gridDimX, p->gridDimY, p->gridDimZ},
                          {p->blockDimX, p->blockDimY, p->blockDimZ}};
        return launch(s, p->func, shape, p->kernelParams);
    });
}

} // namespace

SIM_EXPORT CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
    SIM_ENTER(cuGraphNodeGetType);
    const NodePtr node = find_node(handle);
    if (node == nullptr || type == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *type = node->type;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* p) {
    SIM_ENTER(cuGraphMemcpyNodeGetParams);
    const NodePtr node = find_node(handle);
    if (p == nullptr || node == nullptr || node->work.copy == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *p = *node->work.copy;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* p) {
    SIM_ENTER(cuGraphHostNodeGetParams);
    const NodePtr node = find_node(handle);
    if (p == nullptr || node == nullptr || node->work.called == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *p = *node->work.called;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* child) {
    SIM_ENTER(cuGraphChildGraphNodeGetGraph);
    const NodePtr node = find_node(handle);
    if (child == nullptr || node == nullptr || node->child == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *child = node->child->handle;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* p) {
    SIM_ENTER(cuGraphMemcpyNodeSetParams);
    return change_copy(find_node(node), p);
}
SIM_EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* p) {
    SIM_ENTER(cuGraphHostNodeSetParams);
    return change_host(find_node(node), p);
}
SIM_EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                                  const CUDA_KERNEL_NODE_PARAMS_v2* p) {
    SIM_ENTER(cuGraphKernelNodeSetParams_v2);
    return change_kernel(find_node(node), p);
}
SIM_EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_MEMCPY3D* p, CUcontext) {
    SIM_ENTER(cuGraphExecMemcpyNodeSetParams);
    return change_copy(find_node(exec, node), p);
}
SIM_EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_HOST_NODE_PARAMS* p) {
    SIM_ENTER(cuGraphExecHostNodeSetParams);
    return change_host(find_node(exec, node), p);
}
SIM_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                      const CUDA_KERNEL_NODE_PARAMS_v2* p) {
    SIM_ENTER(cuGraphExecKernelNodeSetParams_v2);
    return change_kernel(find_node(exec, node), p);
}
