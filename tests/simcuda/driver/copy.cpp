#include "copy.h"

#include <algorithm>
#include <cstring>

namespace simcuda {

namespace {

void* at(std::uintptr_t p) {
    return reinterpret_cast<void*>(p);
}

Ns copy_time(std::size_t bytes) {
    const Ns per_ms = std::max<Ns>(1, World::get().setting("copy_mb_per_ms")) << 20;
    return 1000 + bytes * 1'000'000 / per_ms;
}

} // namespace

namespace {

// One contiguous piece as a box.
CUDA_MEMCPY3D as_box(const Piece& piece) {
    const auto on_host = [](std::uintptr_t p) {
        const auto a = World::get().map.find(p);
        return a == nullptr || a->on_host();
    };
    CUDA_MEMCPY3D c{};
    c.srcMemoryType = on_host(piece.src) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    c.srcHost = on_host(piece.src) ? at(piece.src) : nullptr;
    c.srcDevice = on_host(piece.src) ? 0 : piece.src;
    c.dstMemoryType = on_host(piece.dst) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    c.dstHost = on_host(piece.dst) ? at(piece.dst) : nullptr;
    c.dstDevice = on_host(piece.dst) ? 0 : piece.dst;
    c.srcPitch = c.dstPitch = c.WidthInBytes = piece.bytes;
    c.srcHeight = c.dstHeight = c.Height = c.Depth = 1;
    return c;
}

} // namespace

CUresult check_side(std::uintptr_t p, std::size_t bytes, Side side, bool* pageable) {
    World& w = World::get();
    *pageable = false;
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    if (w.map.find(p) != nullptr) {
        return w.map.covers(p, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    const bool device_address = std::any_of(w.devices.begin(), w.devices.end(),
                                            [p](const auto& d) { return d->memory.contains(p); });
    if (side == Side::device || device_address || p == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pageable = true;
    return CUDA_SUCCESS;
}

CUresult copy(const StreamPtr& s, const char* label, const std::vector<Piece>& pieces, Side to,
              Side from, bool wait, const CUDA_MEMCPY3D* box) {
    Work work;
    work.label = label;
    std::size_t total = 0;
    bool to_pageable = false;
    bool from_pageable = false;
    if (pieces.size() > 1) {
        // All rows of a box lie in one allocation.
        const Piece& first = pieces.front();
        const Piece& last = pieces.back();
        bool pageable = false;
        SIM_TRY(check_side(first.dst, last.dst + last.bytes - first.dst, to, &pageable));
        SIM_TRY(check_side(first.src, last.src + last.bytes - first.src, from, &pageable));
    }
    for (const Piece& piece : pieces) {
        bool pageable = false;
        SIM_TRY(check_side(piece.dst, piece.bytes, to, &pageable));
        to_pageable = to_pageable || pageable;
        if (!pageable) {
            work.accesses.push_back({piece.dst, piece.bytes, true});
        }
        SIM_TRY(check_side(piece.src, piece.bytes, from, &pageable));
        from_pageable = from_pageable || pageable;
        if (!pageable) {
            work.accesses.push_back({piece.src, piece.bytes, false});
        }
        total += piece.bytes;
    }
    if (total == 0) {
        return CUDA_SUCCESS;
    }
    work.duration = copy_time(total);
    if (s->capture != nullptr) {
        work.copy =
            std::make_shared<const CUDA_MEMCPY3D>(box != nullptr ? *box : as_box(pieces.front()));
    }
    if (from_pageable && !wait && s->capture == nullptr) {
        // The source is staged before the call returns: the program may change it at once.
        auto staged = std::make_shared<std::vector<std::vector<char>>>();
        for (const Piece& piece : pieces) {
            const auto* bytes = static_cast<const char*>(at(piece.src));
            staged->emplace_back(bytes, bytes + piece.bytes);
        }
        work.effect = [pieces, staged] {
            for (std::size_t i = 0; i < pieces.size(); ++i) {
                std::memmove(at(pieces[i].dst), (*staged)[i].data(), pieces[i].bytes);
            }
        };
    } else {
        work.effect = [pieces] {
            for (const Piece& piece : pieces) {
                std::memmove(at(piece.dst), at(piece.src), piece.bytes);
            }
        };
    }
    OpPtr op;
    SIM_TRY(submit(s, std::move(work), &op));
    if (op != nullptr && (wait || to_pageable)) {
        World::get().wait(op);
    }
    return s->ctx->fault();
}

CUresult fill(const StreamPtr& s, const char* label, std::uintptr_t p, std::size_t pitch,
              std::uint32_t value, std::size_t element, std::size_t width, std::size_t height) {
    Work work;
    work.label = label;
    const std::size_t bytes = width * element;
    if (bytes == 0 || height == 0) {
        return CUDA_SUCCESS;
    }
    if (p % element != 0 || (height > 1 && pitch < bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool pageable = false;
    SIM_TRY(check_side(p, (height - 1) * pitch + bytes, Side::device, &pageable));
    for (std::size_t row = 0; row < height; ++row) {
        work.accesses.push_back({p + row * pitch, bytes, true});
    }
    work.duration = copy_time(bytes * height);
    work.effect = [=] {
        for (std::size_t row = 0; row < height; ++row) {
            auto* to = static_cast<char*>(at(p + row * pitch));
            for (std::size_t i = 0; i < width; ++i) {
                std::memcpy(to + i * element, &value, element);
            }
        }
    };
    return submit(s, std::move(work));
}

} // namespace simcuda
