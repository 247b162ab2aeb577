#include "core/order/capture_gate.h"

#include <sched.h>

namespace cachealloc {

void CaptureGate::begin() {
    open_.fetch_add(1, std::memory_order_seq_cst);
    for (Shard& shard : inside_) {
        while (shard.count.load(std::memory_order_seq_cst) != 0)
            sched_yield();
    }
}

} // namespace cachealloc
