// Stream capture and graphs.
#include "tests/simcuda/runtime/copy_params.h"
#include "tests/simcuda/runtime/kernels.h"
#include "tests/simcuda/runtime/pointers.h"
#include "tests/simcuda/runtime/state.h"

RUNTIME_TWINS(_ptsz, cudaStreamBeginCapture, (cudaStream_t stream, cudaStreamCaptureMode mode), {
    return driver.cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode));
})

RUNTIME_TWINS(_ptsz, cudaStreamBeginCaptureToGraph,
              (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* after,
               const cudaGraphEdgeData* edges, size_t count, cudaStreamCaptureMode mode),
              {
                  static_assert(sizeof(CUgraphEdgeData) == sizeof(cudaGraphEdgeData));
                  return driver.cuStreamBeginCaptureToGraph(
                      stream, graph, after, reinterpret_cast<const CUgraphEdgeData*>(edges), count,
                      static_cast<CUstreamCaptureMode>(mode));
              })

RUNTIME_TWINS(_ptsz, cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t* graph),
              { return driver.cuStreamEndCapture(stream, graph); })

RUNTIME_TWINS(_ptsz, cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus* status),
              {
                  CUstreamCaptureStatus value = CU_STREAM_CAPTURE_STATUS_NONE;
                  Result result = driver.cuStreamIsCapturing(stream, &value);
                  if (status) {
                      *status = static_cast<cudaStreamCaptureStatus>(value);
                  }
                  return result;
              })

RUNTIME_TWINS(_ptsz, cudaStreamGetCaptureInfo,
              (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
               cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
               size_t* count),
              {
                  CUstreamCaptureStatus value = CU_STREAM_CAPTURE_STATUS_NONE;
                  cuuint64_t serial = 0;
                  Result result = driver.cuStreamGetCaptureInfo(
                      stream, &value, id ? &serial : nullptr, graph, nodes,
                      reinterpret_cast<const CUgraphEdgeData**>(edges), count);
                  if (status) {
                      *status = static_cast<cudaStreamCaptureStatus>(value);
                  }
                  if (id) {
                      *id = serial;
                  }
                  return result;
              })

RUNTIME_TWINS(_ptsz, cudaStreamUpdateCaptureDependencies,
              (cudaStream_t stream, cudaGraphNode_t* nodes, const cudaGraphEdgeData* edges,
               size_t count, unsigned flags),
              {
                  return driver.cuStreamUpdateCaptureDependencies(
                      stream, nodes, reinterpret_cast<const CUgraphEdgeData*>(edges), count, flags);
              })

RUNTIME_API(context, cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode * mode), {
    if (!mode) {
        return cudaErrorInvalidValue;
    }
    auto value = static_cast<CUstreamCaptureMode>(*mode);
    Result result = driver.cuThreadExchangeStreamCaptureMode(&value);
    *mode = static_cast<cudaStreamCaptureMode>(value);
    return result;
})

RUNTIME_API(context, cudaGraphCreate, (cudaGraph_t * graph, unsigned flags),
            { return driver.cuGraphCreate(graph, flags); })

RUNTIME_API(context, cudaGraphDestroy, (cudaGraph_t graph),
            { return driver.cuGraphDestroy(graph); })

RUNTIME_API(context, cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t graph),
            { return driver.cuGraphClone(clone, graph); })

RUNTIME_API(context, cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count),
            { return driver.cuGraphGetNodes(graph, nodes, count); })

RUNTIME_API(context, cudaGraphNodeGetType, (cudaGraphNode_t node, cudaGraphNodeType* type), {
    CUgraphNodeType value{};
    Result result = driver.cuGraphNodeGetType(node, &value);
    *type = static_cast<cudaGraphNodeType>(value);
    return result;
})

RUNTIME_API(context, cudaGraphAddDependencies,
            (cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
             const cudaGraphEdgeData* edges, size_t count),
            {
                return driver.cuGraphAddDependencies(
                    graph, from, to, reinterpret_cast<const CUgraphEdgeData*>(edges), count);
            })

RUNTIME_API(context, cudaGraphDestroyNode, (cudaGraphNode_t node),
            { return driver.cuGraphDestroyNode(node); })

RUNTIME_API(context, cudaGraphAddKernelNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             const cudaKernelNodeParams* wanted),
            {
                CUDA_KERNEL_NODE_PARAMS params{};
                Result result = kernel_function(driver, wanted->func, params.func);
                if (!result.ok()) {
                    return result;
                }
                params.gridDimX = wanted->gridDim.x;
                params.gridDimY = wanted->gridDim.y;
                params.gridDimZ = wanted->gridDim.z;
                params.blockDimX = wanted->blockDim.x;
                params.blockDimY = wanted->blockDim.y;
                params.blockDimZ = wanted->blockDim.z;
                params.sharedMemBytes = wanted->sharedMemBytes;
                params.kernelParams = wanted->kernelParams;
                params.extra = wanted->extra;
                return driver.cuGraphAddKernelNode(node, graph, after, count, &params);
            })

RUNTIME_API(context, cudaGraphAddMemcpyNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             const cudaMemcpy3DParms* wanted),
            {
                CUDA_MEMCPY3D params{};
                CUcontext current = nullptr;
                Result result = describe_copy_3d(params, wanted);
                if (result.ok()) {
                    result = driver.cuCtxGetCurrent(&current);
                }
                return result.ok() ? Result(driver.cuGraphAddMemcpyNode(node, graph, after, count,
                                                                        &params, current))
                                   : result;
            })

RUNTIME_API(context, cudaGraphAddMemcpyNode1D,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             void* dst, const void* src, size_t bytes, cudaMemcpyKind kind),
            {
                cudaMemcpy3DParms wanted{};
                wanted.dstPtr = cudaPitchedPtr{dst, bytes, bytes, 1};
                wanted.srcPtr = cudaPitchedPtr{const_cast<void*>(src), bytes, bytes, 1};
                wanted.extent = cudaExtent{bytes, 1, 1};
                wanted.kind = kind;
                CUDA_MEMCPY3D params{};
                CUcontext current = nullptr;
                Result result = describe_copy_3d(params, &wanted);
                if (result.ok()) {
                    result = driver.cuCtxGetCurrent(&current);
                }
                return result.ok() ? Result(driver.cuGraphAddMemcpyNode(node, graph, after, count,
                                                                        &params, current))
                                   : result;
            })

RUNTIME_API(context, cudaGraphAddMemsetNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             const cudaMemsetParams* wanted),
            {
                CUDA_MEMSET_NODE_PARAMS params{};
                params.dst = device(wanted->dst);
                params.pitch = wanted->pitch;
                params.value = wanted->value;
                params.elementSize = wanted->elementSize;
                params.width = wanted->width;
                params.height = wanted->height;
                CUcontext current = nullptr;
                Result result = driver.cuCtxGetCurrent(&current);
                return result.ok() ? Result(driver.cuGraphAddMemsetNode(node, graph, after, count,
                                                                        &params, current))
                                   : result;
            })

RUNTIME_API(context, cudaGraphAddHostNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             const cudaHostNodeParams* wanted),
            {
                CUDA_HOST_NODE_PARAMS params{};
                params.fn = wanted->fn;
                params.userData = wanted->userData;
                return driver.cuGraphAddHostNode(node, graph, after, count, &params);
            })

RUNTIME_API(context, cudaGraphAddEmptyNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count),
            { return driver.cuGraphAddEmptyNode(node, graph, after, count); })

RUNTIME_API(context, cudaGraphAddChildGraphNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             cudaGraph_t child),
            { return driver.cuGraphAddChildGraphNode(node, graph, after, count, child); })

RUNTIME_API(context, cudaGraphAddEventRecordNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             cudaEvent_t event),
            { return driver.cuGraphAddEventRecordNode(node, graph, after, count, event); })

RUNTIME_API(context, cudaGraphAddEventWaitNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             cudaEvent_t event),
            { return driver.cuGraphAddEventWaitNode(node, graph, after, count, event); })

RUNTIME_API(context, cudaGraphAddMemFreeNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
             void* address),
            { return driver.cuGraphAddMemFreeNode(node, graph, after, count, device(address)); })

namespace simcuda::runtime {
namespace {

Result instantiate(const Driver& driver, cudaGraphExec_t* exec, cudaGraph_t graph,
                   unsigned long long flags) {
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = flags;
    return driver.cuGraphInstantiateWithParams(exec, graph, &params);
}

} // namespace
} // namespace simcuda::runtime

RUNTIME_API(context, cudaGraphInstantiate,
            (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
            { return instantiate(driver, exec, graph, flags); })

RUNTIME_API(context, cudaGraphInstantiateWithFlags,
            (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
            { return instantiate(driver, exec, graph, flags); })

RUNTIME_TWINS(_ptsz, cudaGraphInstantiateWithParams,
              (cudaGraphExec_t * exec, cudaGraph_t graph, cudaGraphInstantiateParams* wanted), {
                  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
                  params.flags = wanted->flags;
                  params.hUploadStream = wanted->uploadStream;
                  Result result = driver.cuGraphInstantiateWithParams(exec, graph, &params);
                  wanted->errNode_out = params.hErrNode_out;
                  wanted->result_out = static_cast<cudaGraphInstantiateResult>(params.result_out);
                  return result;
              })

RUNTIME_API(context, cudaGraphExecUpdate,
            (cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info), {
                CUgraphExecUpdateResultInfo answer{};
                Result result = driver.cuGraphExecUpdate(exec, graph, &answer);
                info->result = static_cast<cudaGraphExecUpdateResult>(answer.result);
                info->errorNode = answer.errorNode;
                info->errorFromNode = answer.errorFromNode;
                return result;
            })

RUNTIME_API(context, cudaGraphExecDestroy, (cudaGraphExec_t exec),
            { return driver.cuGraphExecDestroy(exec); })

RUNTIME_TWINS(_ptsz, cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream),
              { return driver.cuGraphLaunch(exec, stream); })

RUNTIME_TWINS(_ptsz, cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream),
              { return driver.cuGraphUpload(exec, stream); })
