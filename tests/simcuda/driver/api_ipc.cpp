// Memory handles for other processes. The importer maps the exporter's memory file through /proc.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "guard.h"

using namespace simcuda;

namespace {

// Where real handles keep them, as measured: bytes 16..23 are the size, 56..63 zero; changing bytes
// 0, 12 or 56..63 does no harm, changing 36 or 52 makes the handle invalid.
struct Contents {
    std::uint64_t ignored[2];
    std::uint64_t size;
    std::uint32_t pid;
    std::int32_t file;
    std::uint64_t offset;
    std::uint64_t serial;
    std::uint64_t check;
    std::uint64_t zero;
};
static_assert(sizeof(Contents) == CU_IPC_HANDLE_SIZE);

std::uint64_t checksum(const Contents& c) {
    std::uint64_t h = 0x9E3779B97F4A7C15ULL;
    for (const std::uint64_t part :
         {c.size, std::uint64_t{c.pid}, static_cast<std::uint64_t>(c.file), c.offset, c.serial}) {
        h = (h ^ part) * 0xFF51AFD7ED558CCDULL;
        h ^= h >> 29;
    }
    return h;
}

std::map<std::uintptr_t, std::pair<void*, std::size_t>>& views() {
    static auto* const table = new std::map<std::uintptr_t, std::pair<void*, std::size_t>>;
    return *table;
}
std::map<std::pair<std::uint32_t, std::uint64_t>, std::uintptr_t>& opened() {
    static auto* const table =
        new std::map<std::pair<std::uint32_t, std::uint64_t>, std::uintptr_t>;
    return *table;
}

CUresult open_handle(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags) {
    World& w = World::get();
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    SIM_TRY(forbid_while_capturing(true));
    Contents c{};
    std::memcpy(&c, &handle, sizeof c);
    if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || c.check != checksum(c)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (c.pid == static_cast<std::uint32_t>(getpid())) {
        return CUDA_ERROR_INVALID_CONTEXT; // as measured: not in the process that exported it
    }
    const auto key = std::make_pair(c.pid, c.serial);
    if (opened().count(key) != 0) {
        return CUDA_ERROR_ALREADY_MAPPED;
    }
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%u/fd/%d", c.pid, c.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return CUDA_ERROR_INVALID_VALUE; // the exporter is gone
    }
    const std::size_t inside = c.offset % kGranule;
    const std::size_t bytes = round_up(inside + c.size, kGranule);
    void* view = map_file(nullptr, bytes, file, c.offset - inside, true);
    close(file);
    if (view == nullptr) {
        return CUDA_ERROR_MAP_FAILED;
    }
    Allocation a;
    a.base = reinterpret_cast<std::uintptr_t>(view) + inside;
    a.size = c.size;
    a.kind = Memory::imported;
    a.device = ctx->device;
    a.ctx = owner_of(ctx);
    views()[a.base] = {view, bytes};
    opened()[key] = a.base;
    *out = a.base;
    w.map.add(std::move(a));
    return CUDA_SUCCESS;
}

} // namespace

SIM_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr p) {
    SIM_ENTER(cuIpcGetMemHandle);
    World& w = World::get();
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    const auto a = w.map.find(p);
    if (handle == nullptr || a == nullptr || a->kind != Memory::device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const DeviceMemory& memory = w.devices[static_cast<std::size_t>(a->device)]->memory;
    Contents c{};
    c.ignored[0] = 0x436D69537241436DULL;
    c.ignored[1] = 0x1122334455667788ULL;
    c.size = a->size;
    c.pid = static_cast<std::uint32_t>(getpid());
    c.file = memory.file();
    c.offset = a->base - memory.begin();
    c.serial = a->buffer_id;
    c.check = checksum(c);
    std::memcpy(handle, &c, sizeof c);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* p, CUipcMemHandle handle, unsigned int flags) {
    SIM_ENTER(cuIpcOpenMemHandle);
    return open_handle(p, handle, flags);
}
SIM_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* p, CUipcMemHandle handle,
                                          unsigned int flags) {
    SIM_ENTER(cuIpcOpenMemHandle_v2);
    return open_handle(p, handle, flags);
}

SIM_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr p) {
    SIM_ENTER(cuIpcCloseMemHandle);
    const auto a = World::get().map.at(p);
    if (a == nullptr || a->kind != Memory::imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    wait_as_free(a->ctx);
    drop_allocation(a);
    const auto view = views()[p];
    unmap_pages(view.first, view.second);
    views().erase(p);
    for (auto it = opened().begin(); it != opened().end(); ++it) {
        if (it->second == p) {
            opened().erase(it);
            break;
        }
    }
    return CUDA_SUCCESS;
}
