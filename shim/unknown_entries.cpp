#include "shim/unknown_entries.h"

#include "shim/log.h"
#include "shim/process.h"

#include <array>
#include <atomic>

extern "C" {
// Read by submit_stubs.S.
constinit std::atomic<void*> cachealloc_unknown_target[cachealloc::shim::UnknownEntries::kPlaces]{};
constinit std::atomic<std::uint8_t>
    cachealloc_unknown_called[cachealloc::shim::UnknownEntries::kPlaces]{};

// The stubs lie one behind the other.
extern char cachealloc_unknown_stubs[];
}

namespace cachealloc::shim {

namespace {

constexpr std::size_t kStubBytes = 32; // as submit_stubs.S aligns them
using Name = std::array<char, 64>;
constinit std::array<Name, UnknownEntries::kPlaces> g_names{};

void keep_name(Name& kept, const char* name) {
    for (std::size_t i = 0; name != nullptr && i + 1 < kept.size() && name[i] != '\0'; ++i)
        kept[i] = name[i];
}

void give_up_order() {
    if (Process* const state = process()) state->total_order.leave_to_unseen_work();
}

} // namespace

void* UnknownEntries::stand_in(const char* name, void* function) {
    for (std::size_t i = 0; i < kPlaces; ++i) {
        void* none = nullptr;
        if (cachealloc_unknown_target[i].compare_exchange_strong(none, function)) {
            keep_name(g_names[i], name);
            none = function;
        }
        if (none == function) return cachealloc_unknown_stubs + i * kStubBytes;
    }
    give_up_order();
    return function;
}

const char* UnknownEntries::called(std::size_t index) {
    for (std::size_t i = 0; i < kPlaces; ++i) {
        if (cachealloc_unknown_called[i].load(std::memory_order_acquire) == 0) continue;
        if (index-- == 0) return g_names[i].data();
    }
    return nullptr;
}

} // namespace cachealloc::shim

// What a stub calls at its first call: the function to jump to.
extern "C" __attribute__((used)) void* cachealloc_unknown(const std::uintptr_t*,
                                                          std::uint32_t number) {
    using namespace cachealloc::shim;
    give_up_order(); // before the bit: a call of another thread must not pass ahead of this
    if (cachealloc_unknown_called[number].exchange(1) == 0) {
        logf(LogLevel::info,
             "%s is newer than this library: what it does is not known, so frees are fenced from "
             "now on",
             g_names[number].data());
    }
    return cachealloc_unknown_target[number].load(std::memory_order_acquire);
}
