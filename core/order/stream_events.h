#pragma once

#include "core/order/fences.h"

#include <array>
#include <cstdint>
#include <mutex>

namespace cachealloc {

/// Events that stand for one stream's work, for frees in a stream's own order. They are outside the
/// fences' ring and numbers: one that has finished says nothing of any other work.
///
/// Invariant: an event is held by one owner from take() to give_back(), and only the owner records
/// it; so while a block holds its event, the event stands for that block's free. Recording it again
/// later harms no stream that was made to wait for it before.
///
/// Thread-safe; the lock is held for a few instructions, never across a call of StreamOrder.
class StreamEvents {
  public:
    static constexpr std::uint32_t kEvents = 4096;
    static constexpr std::uint32_t kNone = ~0U;

    /// `fences` must outlive this object; it is told of a lost context.
    explicit StreamEvents(Fences& fences) : fences_(fences) {}

    /// An event for the caller, the latest given back first; kNone when all are held.
    std::uint32_t take();
    void give_back(std::uint32_t event);

    /// Lets the event stand for the stream's work so far. Returns done, refused (also when the
    /// event cannot be made), failed or lost.
    OrderResult record(StreamHandle stream, std::uint32_t event);

    /// Asks about it. Returns done, pending, failed or lost. One driver call.
    OrderStatus ask(std::uint32_t event);

    /// Makes the stream's later work wait for it. Returns done, refused, failed or lost.
    OrderResult wait(StreamHandle stream, std::uint32_t event);

  private:
    static std::uint32_t name(std::uint32_t event) { return Fences::kEvents + event; }

    Fences& fences_;
    std::mutex mutex_;
    std::uint32_t given_back_ = 0; ///< entries of free_
    std::uint32_t used_ = 0;       ///< events below it were taken at least once
    std::array<std::uint16_t, kEvents> free_{};
};

} // namespace cachealloc
