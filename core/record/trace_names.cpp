#include "core/record/trace_format.h"

#include <array>

namespace cachealloc::trace {

namespace {

/// Each at its value's place; what has no name is "".
constexpr std::array kCallNames = {
    "",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemAllocHost",
    "cuMemFreeHost",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuArrayCreate",
    "cuArrayDestroy",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "context end",
    "trim",
};
static_assert(kCallNames.size() == static_cast<std::size_t>(CallName::trim) + 1);

constexpr std::array kKindNames = {
    "",
    "alloc",
    "free",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "out_of_memory",
    "trim",
    "mark",
};
static_assert(kKindNames.size() == static_cast<std::size_t>(EventKind::mark) + 1);

constexpr std::array kMemoryNames = {
    "",      "pooled",  "device",        "stream_ordered", "managed", "pinned",
    "array", "pitched", "explicit_pool", "physical",       "mapping",
};
static_assert(kMemoryNames.size() == kMemoryTypes);

template <typename Table, typename Value>
const char* name_in(const Table& names, Value value) {
    const auto place = static_cast<std::size_t>(value);
    return place < names.size() ? names[place] : "";
}

} // namespace

const char* call_name(CallName call) {
    return name_in(kCallNames, call);
}

const char* kind_name(EventKind kind) {
    return name_in(kKindNames, kind);
}

const char* memory_name(MemoryType type) {
    return name_in(kMemoryNames, type);
}

} // namespace cachealloc::trace
