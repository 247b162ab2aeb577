#include "core/record/text_log.h"

#include <cstring>

namespace cachealloc {

namespace {

std::string_view up_to_nul(std::string_view text) {
    return text.substr(0, text.find('\0'));
}

} // namespace

bool TextLog::append(std::string_view name, std::string_view value) {
    name = up_to_nul(name);
    value = up_to_nul(value);
    if (!lock_.lock()) return false;
    std::atomic<std::uint64_t>& used = space_.section->used;
    const std::uint64_t offset = used.load(std::memory_order_relaxed);
    const std::uint64_t bytes = name.size() + value.size() + 2;
    const bool room = bytes <= space_.capacity() - offset;
    if (room) {
        std::byte* const at = space_.data + offset; // zeroed: the NULs are there
        std::memcpy(at, name.data(), name.size());
        std::memcpy(at + name.size() + 1, value.data(), value.size());
        used.store(offset + bytes, std::memory_order_release);
    }
    lock_.unlock();
    return room;
}

} // namespace cachealloc
