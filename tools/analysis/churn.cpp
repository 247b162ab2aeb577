#include "tools/analysis/churn.h"

#include <bit>

namespace cachealloc::tools {

void Churn::on_event(const Event& event, const State& state, const Block* ended) {
    (void)state;
    if (device_ >= 0 && event.device != device_) return;
    if (!trace::on_device(event.memory)) return;
    const auto number = static_cast<std::size_t>(std::bit_width(event.size | 1) - 1);
    ChurnClass& one = classes_[number];
    if (event.kind == trace::EventKind::alloc) {
        ++one.allocations;
        one.bytes += event.size;
    } else if (event.kind == trace::EventKind::free) {
        ++one.frees;
        if (ended == nullptr || ended->since == 0) return;
        ++one.lifetimes;
        if (event.time > ended->since)
            one.lifetime_ticks += static_cast<double>(event.time - ended->since);
    }
}

ChurnClass Churn::total() const {
    ChurnClass sum;
    for (const ChurnClass& one : classes_) {
        sum.allocations += one.allocations;
        sum.frees += one.frees;
        sum.bytes += one.bytes;
        sum.lifetimes += one.lifetimes;
        sum.lifetime_ticks += one.lifetime_ticks;
    }
    return sum;
}

} // namespace cachealloc::tools
