#include "core/order/stream_events.h"

namespace cachealloc {

std::uint32_t StreamEvents::take() {
    const std::lock_guard lock(mutex_);
    if (given_back_ != 0) return free_[--given_back_];
    return used_ < kEvents ? used_++ : kNone;
}

void StreamEvents::give_back(std::uint32_t event) {
    const std::lock_guard lock(mutex_);
    free_[given_back_++] = static_cast<std::uint16_t>(event);
}

OrderResult StreamEvents::record(StreamHandle stream, std::uint32_t event) {
    return fences_.note(fences_.order().record_on(stream, name(event)));
}

OrderStatus StreamEvents::ask(std::uint32_t event) {
    if (!rule_on(Rule::stream_event)) return OrderStatus::done;
    return fences_.note(fences_.order().query(name(event))).status;
}

OrderResult StreamEvents::wait(StreamHandle stream, std::uint32_t event) {
    if (!rule_on(Rule::stream_event)) return {};
    return fences_.note(fences_.order().wait_on_stream(stream, name(event)));
}

} // namespace cachealloc
