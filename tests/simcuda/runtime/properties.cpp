// cudaGetDeviceProperties, from a table of driver attributes.
#include "tests/simcuda/runtime/state.h"

#include <cstring>

namespace simcuda::runtime {
namespace {

struct IntProperty {
    CUdevice_attribute attribute;
    int cudaDeviceProp::*member;
};

struct SizeProperty {
    CUdevice_attribute attribute;
    size_t cudaDeviceProp::*member;
};

using Prop = cudaDeviceProp;

constexpr IntProperty kIntProperties[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &Prop::regsPerBlock},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &Prop::warpSize},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &Prop::maxThreadsPerBlock},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &Prop::major},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &Prop::minor},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &Prop::multiProcessorCount},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, &Prop::integrated},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, &Prop::canMapHostMemory},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, &Prop::concurrentKernels},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, &Prop::ECCEnabled},
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &Prop::pciBusID},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &Prop::pciDeviceID},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &Prop::pciDomainID},
    {CU_DEVICE_ATTRIBUTE_TCC_DRIVER, &Prop::tccDriver},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, &Prop::asyncEngineCount},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &Prop::unifiedAddressing},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &Prop::memoryBusWidth},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &Prop::l2CacheSize},
    {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, &Prop::persistingL2CacheMaxSize},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &Prop::maxThreadsPerMultiProcessor},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, &Prop::streamPrioritiesSupported},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, &Prop::regsPerMultiprocessor},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &Prop::managedMemory},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, &Prop::pageableMemoryAccess},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, &Prop::concurrentManagedAccess},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, &Prop::computePreemptionSupported},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
     &Prop::canUseHostPointerForRegisteredMem},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &Prop::cooperativeLaunch},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, &Prop::maxBlocksPerMultiProcessor},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, &Prop::hostRegisterSupported},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &Prop::memoryPoolsSupported},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, &Prop::gpuDirectRDMASupported},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, &Prop::ipcEventSupported},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, &Prop::clusterLaunch},
};

constexpr SizeProperty kSizeProperties[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &Prop::sharedMemPerBlock},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, &Prop::memPitch},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, &Prop::totalConstMem},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &Prop::textureAlignment},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, &Prop::texturePitchAlignment},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, &Prop::surfaceAlignment},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &Prop::sharedMemPerMultiprocessor},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &Prop::sharedMemPerBlockOptin},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, &Prop::reservedSharedMemPerBlock},
};

} // namespace
} // namespace simcuda::runtime

RUNTIME_API(init, cudaGetDeviceProperties, (cudaDeviceProp * out, int device), {
    if (!out) {
        return cudaErrorInvalidValue;
    }
    std::memset(out, 0, sizeof *out);
    Result result = driver.cuDeviceGetName(out->name, sizeof out->name, device);
    if (!result.ok()) {
        return cudaErrorInvalidDevice;
    }
    CUuuid uuid{};
    driver.cuDeviceGetUuid(&uuid, device);
    std::memcpy(&out->uuid, &uuid, sizeof uuid);
    driver.cuDeviceTotalMem(&out->totalGlobalMem, device);
    auto ask = [&](CUdevice_attribute attribute) {
        int value = 0; // An attribute that this driver does not know stays 0.
        driver.cuDeviceGetAttribute(&value, attribute, device);
        return value;
    };
    for (const IntProperty& property : kIntProperties) {
        out->*property.member = ask(property.attribute);
    }
    for (const SizeProperty& property : kSizeProperties) {
        out->*property.member = static_cast<size_t>(ask(property.attribute));
    }
    for (int axis = 0; axis < 3; ++axis) {
        out->maxThreadsDim[axis] =
            ask(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis));
        out->maxGridSize[axis] =
            ask(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis));
    }
    return cudaSuccess;
})
