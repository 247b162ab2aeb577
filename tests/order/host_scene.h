// What the cases about the host's view of the device share: work whose results the host sees, and
// the waits of the shim.
//
// A scene is a stream with a late kernel and behind it something host-visible; a block is freed,
// which natively waits for all of it; then the host looks.
#pragma once

#include "tests/order/cases.h"

#include <atomic>
#include <cstdint>

namespace order {

/// How often a free, or a question after one, has waited so far under free:auto; 0 without it.
std::uint64_t native_waits();
std::uint64_t query_waits();

/// A question that is answered with "not ready".
bool not_ready(cudaError_t answer);

struct Scene {
    explicit Scene(cudaStream_t on);
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;
    ~Scene();

    /// A late kernel writes `value` into `block`, on the stream.
    void compute(Byte value = kNew);
    /// Frees a block that no work of the scene uses.
    void free_something();
    /// The host looks at the results of `work`: an error if they are not there.
    void look(Byte value = kNew);

    cudaStream_t stream;
    Byte* block;              ///< device memory
    Byte* pinned;             ///< as large
    bool by_function = false; ///< the results are `called`, else `pinned`
    std::atomic<int> called{0};
};

/// Something that the host may look at. `start` submits it behind what the stream holds.
struct HostWork {
    const char* name;
    void (*start)(Scene& scene);
};
inline constexpr std::size_t kHostWorks = 12;
const HostWork& host_work(std::size_t index);

} // namespace order
