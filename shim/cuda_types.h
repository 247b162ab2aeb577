// The CUDA driver's types as far as the shim names them. Not cuda.h: that header renames functions
// by macro and changes signatures between toolkits, while the shim must define the old names and
// must build with any toolkit. Everything lives in our namespace, so a file that includes cuda.h as
// well (tests do, to compare) sees two distinct sets. Layouts and values are the driver's ABI;
// handles are opaque. A source file of the shim never includes cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cachealloc::shim {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUgreenCtx = struct CUgreenCtx_st*;
using CUdevResourceDesc = struct CUdevResourceDesc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
struct CUgraphEdgeData;
using CUgraphExec = struct CUgraphExec_st*;
using CUmodule = struct CUmod_st*;
using CUlibrary = struct CUlib_st*;
using CUarray = struct CUarray_st*;
using CUmipmappedArray = struct CUmipmappedArray_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUmemGenericAllocationHandle = unsigned long long;
enum CUjit_option : unsigned;
enum CUlibraryOption : unsigned;
enum CUmemAllocationHandleType : unsigned;
struct CUmemPoolPtrExportData;
struct CUDA_GRAPH_INSTANTIATE_PARAMS;
struct CUexecAffinityParam;
struct CUctxCreateParams;
union CUstreamBatchMemOpParams;
struct CUmemcpyAttributes;
struct CUDA_MEMCPY3D_BATCH_OP;
struct CUDA_MEMCPY2D_v1; // of 32-bit device addresses
struct CUDA_MEMCPY3D_v1;
struct CUgraphExecUpdateResultInfo;
struct CUgraphNodeParams;
enum CUgraphExecUpdateResult : unsigned;

// A handle that another process opens. Its bytes belong to the driver.
struct CUipcMemHandle {
    char reserved[64];
};
struct CUipcEventHandle {
    char reserved[64];
};

// How a kernel is launched. Only the attributes named here are looked at.
enum CUlaunchAttributeID : unsigned {
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT = 7,
    CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT = 12,
};
struct CUlaunchAttribute {
    CUlaunchAttributeID id;
    char pad[4];
    char value[64]; // a union; for PROGRAMMATIC_STREAM_SERIALIZATION an int
};
using CUfunction = struct CUfunc_st*;
struct CUlaunchConfig {
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute* attrs;
    unsigned int numAttrs;
};

enum CUresult : unsigned;
using CUhostFn = void (*)(void* data);
using CUstreamCallback = void (*)(CUstream stream, CUresult status, void* data);

// One end of a copy, as far as the shim reads it.
enum CUmemorytype : unsigned {
    CU_MEMORYTYPE_HOST = 1,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMORYTYPE_ARRAY = 3,
    CU_MEMORYTYPE_UNIFIED = 4,
};
struct CUDA_MEMCPY2D {
    std::size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void* srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    std::size_t srcPitch;
    std::size_t dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void* dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    std::size_t dstPitch;
    std::size_t WidthInBytes, Height;
};
struct CUDA_MEMCPY3D {
    std::size_t srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void* srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void* reserved0; // a context in CUDA_MEMCPY3D_PEER
    std::size_t srcPitch, srcHeight;
    std::size_t dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void* dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void* reserved1; // likewise
    std::size_t dstPitch, dstHeight;
    std::size_t WidthInBytes, Height, Depth;
};
struct CUDA_MEMCPY3D_PEER : CUDA_MEMCPY3D {};

enum CUgraphNodeType : unsigned {
    CU_GRAPH_NODE_TYPE_KERNEL = 0,
    CU_GRAPH_NODE_TYPE_MEMCPY = 1,
    CU_GRAPH_NODE_TYPE_MEMSET = 2,
    CU_GRAPH_NODE_TYPE_HOST = 3,
    CU_GRAPH_NODE_TYPE_GRAPH = 4,
    CU_GRAPH_NODE_TYPE_EMPTY = 5,
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
    CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
};

// The codes that the shim returns or looks at; any other value may come from the driver.
enum CUresult : unsigned {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_UNKNOWN = 999,
};

enum CUpointer_attribute : unsigned {
    CU_POINTER_ATTRIBUTE_CONTEXT = 1,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    CU_POINTER_ATTRIBUTE_P2P_TOKENS = 5,
    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
    CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPED = 13,
    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
    CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
    CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
    CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE = 21,
};

enum CUmemAllocationType : unsigned {
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_ALLOCATION_TYPE_MANAGED = 2,
};
struct CUmemPoolProps {
    CUmemAllocationType allocType; // and more
};
enum CUmemLocationType : unsigned {
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
};

struct CUmemLocation {
    CUmemLocationType type;
    int id;
};

struct CUmemAllocationProp {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void* win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
};
enum CUmemAllocationGranularity_flags : unsigned {
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
};

// The formats that CUDA itself works with; those of graphics are looked at by number.
enum CUarray_format : unsigned {
    CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
    CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
    CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
    CU_AD_FORMAT_SIGNED_INT8 = 0x08,
    CU_AD_FORMAT_SIGNED_INT16 = 0x09,
    CU_AD_FORMAT_SIGNED_INT32 = 0x0a,
    CU_AD_FORMAT_HALF = 0x10,
    CU_AD_FORMAT_FLOAT = 0x20,
};
struct CUDA_ARRAY_DESCRIPTOR {
    std::size_t Width, Height;
    CUarray_format Format;
    unsigned int NumChannels;
};
struct CUDA_ARRAY3D_DESCRIPTOR {
    std::size_t Width, Height, Depth;
    CUarray_format Format;
    unsigned int NumChannels;
    unsigned int Flags;
};
// Flags of CUDA_ARRAY3D_DESCRIPTOR.
inline constexpr unsigned kArrayLayered = 1;
inline constexpr unsigned kArraySparse = 0x40;
inline constexpr unsigned kArrayDeferred = 0x80;

enum CUmemAccess_flags : unsigned {
    CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
};

struct CUmemAccessDesc {
    CUmemLocation location;
    CUmemAccess_flags flags;
};

enum CUmemPool_attribute : unsigned {
    CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
    CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
};

enum CUdevice_attribute : unsigned {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
};

enum CUstreamCaptureMode : unsigned {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

enum CUstreamCaptureStatus : unsigned {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
};

enum CUmemRangeHandleType : unsigned {
    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
};

// What cuGetProcAddress_v2 says beside the pointer.
enum CUdriverProcAddressQueryResult : unsigned {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
};

// Flags of cuEventCreate and cuStreamCreate.
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kStreamNonBlocking = 1;

// Stream handles that name a default stream; the null handle means one of the two, depending on the
// entry point (the per-thread one for _ptsz names).
inline const CUstream kStreamLegacy = reinterpret_cast<CUstream>(std::uintptr_t{1});
inline const CUstream kStreamPerThread = reinterpret_cast<CUstream>(std::uintptr_t{2});

} // namespace cachealloc::shim
