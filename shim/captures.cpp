#include "shim/captures.h"

#include "shim/driver.h"
#include "shim/process.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace cachealloc::shim {

namespace {

std::mutex g_mutex;
std::vector<CUstream>& origins() {
    static auto* const streams = new std::vector<CUstream>(); // immortal: used until the very end
    return *streams;
}

} // namespace

void Captures::announce() {
    Process* const state = process();
    if (state == nullptr) return;
    state->total_order.leave(); // while an event can still be recorded
    state->gate.begin();
}

void Captures::withdraw() {
    Process* const state = process();
    if (state == nullptr) return;
    state->gate.end();
    if (state->gate.open() != 0) return;
    state->contexts.for_each([](ContextPool& context) { context.pool.captures_ended(); });
}

void Captures::note(CUstream stream) {
    const std::lock_guard lock(g_mutex);
    origins().push_back(stream);
}

bool Captures::forget(CUstream stream) {
    const std::lock_guard lock(g_mutex);
    const auto found = std::find(origins().begin(), origins().end(), stream);
    if (found == origins().end()) return false;
    origins().erase(found);
    return true;
}

void Captures::maybe_ended(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return;
    }
    if (forget(stream)) withdraw();
}

void Captures::destroyed(CUstream stream) {
    if (forget(stream)) withdraw();
}

} // namespace cachealloc::shim
