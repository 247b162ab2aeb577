// Copies and fills as device work: bounds as a driver checks them, and who has to wait.
#pragma once

#include "guard.h"

namespace simcuda {

enum class Side { device, host, any };

// A contiguous piece of a copy.
struct Piece {
    std::uintptr_t dst = 0;
    std::uintptr_t src = 0;
    std::size_t bytes = 0;
};

// One end of a copy: INVALID_VALUE when it should lie in known memory but does not wholly do so.
// `pageable` becomes true for plain host memory.
CUresult check_side(std::uintptr_t p, std::size_t bytes, Side side, bool* pageable);

// Copies on a stream. `wait`: the call returns when it is done (when pageable memory is the target,
// an asynchronous call waits as well). `box`: the same copy as a node of a graph describes it; made
// from the one piece without it.
CUresult copy(const StreamPtr& s, const char* label, const std::vector<Piece>& pieces, Side to,
              Side from, bool wait, const CUDA_MEMCPY3D* box = nullptr);

// Fills `height` rows of `width` elements with a pattern of 1, 2 or 4 bytes.
CUresult fill(const StreamPtr& s, const char* label, std::uintptr_t p, std::size_t pitch,
              std::uint32_t value, std::size_t element, std::size_t width, std::size_t height);

// Submits a copy of rows and slices.
CUresult copy_volume(const StreamPtr& s, const CUDA_MEMCPY3D& c, const char* label, bool wait);

} // namespace simcuda
