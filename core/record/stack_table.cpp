#include "core/record/stack_table.h"

#include <bit>
#include <cstring>

namespace cachealloc {

using trace::Frame;
using trace::StackSlot;

namespace {

constexpr std::uint64_t kNoRoom = ~std::uint64_t{0};

/// The two halves of a 128-bit product, folded: every bit of both factors reaches every bit.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

constexpr std::uint64_t kFirst = 0xa0761d6478bd642f;
constexpr std::uint64_t kSecond = 0xe7037ed1a0b428db;
constexpr std::uint64_t kThird = 0x8ebc6af09c88c6e3;

} // namespace

std::uint64_t StackTable::hash_of(std::span<const Frame> frames, std::uint64_t seed) {
    // Two chains, which the processor multiplies side by side.
    std::uint64_t left = seed ^ kFirst;
    std::uint64_t right = frames.size() ^ kSecond;
    std::size_t i = 0;
    for (; i + 4 <= frames.size(); i += 4) {
        left = fold(frames[i] ^ kFirst, frames[i + 1] ^ left);
        right = fold(frames[i + 2] ^ kSecond, frames[i + 3] ^ right);
    }
    for (; i < frames.size(); ++i)
        left = fold(frames[i] ^ kThird, left ^ kSecond);
    const std::uint64_t hash = fold(left ^ kThird, right ^ kFirst);
    return hash != 0 ? hash : 1;
}

StackTable::StackTable(TraceFile& file, SectionSpace& slots, SectionSpace& frames)
    : file_(file), frames_(frames), slots_(reinterpret_cast<StackSlot*>(slots.data)),
      mask_(std::bit_floor(slots.capacity() / sizeof(StackSlot)) - 1) {}

std::uint32_t StackTable::intern(std::span<const Frame> frames, bool cut, std::uint32_t modules) {
    const std::uint64_t seed =
        std::uint64_t{generation_.load(std::memory_order_relaxed)} << 1 | (cut ? 1U : 0U);
    const std::uint64_t hash = hash_of(frames, seed);
    std::uint64_t offset = kNoRoom;
    const std::uint64_t bytes = frames.size_bytes();
    std::size_t index = static_cast<std::size_t>(hash) & mask_;
    for (std::size_t probe = 0; probe < kProbes; ++probe, index = (index + 1) & mask_) {
        StackSlot& slot = slots_[index];
        std::uint64_t known = slot.hash.load(std::memory_order_acquire);
        if (known == 0) {
            // The frames' room comes first: a slot is never taken for a stack that has none.
            if (offset == kNoRoom) offset = reserve(bytes);
            if (offset == kNoRoom) return 0;
            if (slot.hash.compare_exchange_strong(known, hash, std::memory_order_acq_rel)) {
                std::memcpy(frames_.data + offset, frames.data(), bytes);
                slot.frames = static_cast<std::uint16_t>(frames.size());
                slot.flags = cut ? trace::kCutStack : 0;
                slot.modules = modules;
                slot.first.store(static_cast<std::uint32_t>(offset / sizeof(Frame)) + 1,
                                 std::memory_order_release);
                return static_cast<std::uint32_t>(index) + 1;
            }
        }
        if (known != hash) continue;
        if (offset != kNoRoom) take_back(offset, bytes);
        return static_cast<std::uint32_t>(index) + 1;
    }
    if (offset != kNoRoom) take_back(offset, bytes);
    return 0;
}

/// The offset of room for frames, or kNoRoom.
std::uint64_t StackTable::reserve(std::uint64_t bytes) {
    std::atomic<std::uint64_t>& used = frames_.section->used;
    std::uint64_t offset = used.load(std::memory_order_relaxed);
    do {
        if (offset + bytes > frames_.ready() && !file_.grow(frames_, offset + bytes))
            return kNoRoom;
    } while (!used.compare_exchange_weak(offset, offset + bytes, std::memory_order_relaxed));
    return offset;
}

void StackTable::grow_ahead() {
    const std::uint64_t soon =
        frames_.section->used.load(std::memory_order_relaxed) + frames_.step / 2;
    if (soon > frames_.ready() && soon <= frames_.capacity()) file_.grow(frames_, soon);
}

/// Another thread entered the stack first. If nobody took room since, it is free again; else it
/// stays unused.
void StackTable::take_back(std::uint64_t offset, std::uint64_t bytes) {
    std::uint64_t end = offset + bytes;
    frames_.section->used.compare_exchange_strong(end, offset, std::memory_order_relaxed);
}

} // namespace cachealloc
