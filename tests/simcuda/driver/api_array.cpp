// Arrays as memory: they take up room on their device, and have no content that anybody could copy.
#include "guard.h"

#include <algorithm>

using namespace simcuda;

namespace {

struct Array {
    std::size_t bytes = 0;
    int device = 0;
    bool levels = false;
};

std::map<const Array*, std::unique_ptr<Array>>& arrays() {
    static auto* const table = new std::map<const Array*, std::unique_ptr<Array>>;
    return *table;
}

std::size_t element_bytes(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4;
    }
}

template <class Handle>
CUresult create(Handle* handle, const CUDA_ARRAY3D_DESCRIPTOR& wanted, unsigned levels) {
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    SIM_TRY(forbid_while_capturing(true));
    if (handle == nullptr || wanted.Width == 0 || levels == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::size_t bytes = 0;
    for (unsigned level = 0; level < levels; ++level) {
        const auto half = [level](std::size_t extent) {
            return std::max<std::size_t>(extent >> level, 1);
        };
        bytes += half(wanted.Width) * half(wanted.Height) * half(wanted.Depth) *
                 element_bytes(wanted.Format) * wanted.NumChannels;
    }
    auto made = std::make_unique<Array>();
    made->bytes = round_up(bytes, kGranule);
    made->device = ctx->device;
    made->levels = std::is_same_v<Handle, CUmipmappedArray>;
    if (!World::get().devices[static_cast<std::size_t>(ctx->device)]->memory.take(made->bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = reinterpret_cast<Handle>(made.get());
    const Array* const key = made.get();
    arrays().emplace(key, std::move(made));
    return CUDA_SUCCESS;
}

CUresult destroy(const void* handle, bool levels) {
    const auto found = arrays().find(static_cast<const Array*>(handle));
    if (found == arrays().end() || found->second->levels != levels) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    World::get().devices[static_cast<std::size_t>(found->second->device)]->memory.give(
        found->second->bytes);
    arrays().erase(found);
    return CUDA_SUCCESS;
}

} // namespace

SIM_EXPORT CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* flat) {
    SIM_ENTER(cuArrayCreate_v2);
    if (flat == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_ARRAY3D_DESCRIPTOR wanted{};
    wanted.Width = flat->Width;
    wanted.Height = flat->Height;
    wanted.Format = flat->Format;
    wanted.NumChannels = flat->NumChannels;
    return create(array, wanted, 1);
}

SIM_EXPORT CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
    SIM_ENTER(cuArray3DCreate_v2);
    return wanted == nullptr ? CUDA_ERROR_INVALID_VALUE : create(array, *wanted, 1);
}

SIM_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* array,
                                           const CUDA_ARRAY3D_DESCRIPTOR* wanted,
                                           unsigned int levels) {
    SIM_ENTER(cuMipmappedArrayCreate);
    return wanted == nullptr ? CUDA_ERROR_INVALID_VALUE : create(array, *wanted, levels);
}

SIM_EXPORT CUresult cuArrayDestroy(CUarray array) {
    SIM_ENTER(cuArrayDestroy);
    return destroy(array, false);
}

SIM_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    SIM_ENTER(cuMipmappedArrayDestroy);
    return destroy(array, true);
}
