// The table of entry_points.def as data: which driver entry points exist, what they mean to the
// pool and which of them the shim intercepts.
//
// Invariant: nothing here needs a relocation, a constructor or a libc function, because the look-up
// runs inside dlsym, which other libraries call before this one is initialised.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cachealloc::shim {

// What a call means to a caching allocator.
enum class Kind : std::uint8_t {
    lookup,         // finds entry points by name
    allocate,       // classic device memory: the pool's own business
    free,           //
    allocate_async, // stream-ordered memory
    free_async,     //
    query,          // asks about memory
    context,        // creates, ends, selects or connects contexts
    stream,         // creates or ends a stream
    capture,        // begins, ends or steers a capture
    submit,         // hands work to the device
    sync,           // orders or observes work
    ipc,            // memory or events of another process
    vmm,            // virtual memory management
    mempool,        // explicit pools and their attributes
    memory,         // memory that the pool does not own
    harmless,       // none of these
};

// Where the stream is that a call works on: a position in the argument list (0, 1, ..), or
inline constexpr std::int8_t kStreamNone = -1;     // it has none
inline constexpr std::int8_t kStreamInStruct = -2; // behind a pointer argument
inline constexpr std::int8_t kStreamImplicit = -3; // the default stream, which one the name tells

// The words of the table's stream column.
enum StreamColumn : std::int8_t {
    stream_none = kStreamNone,
    stream_in_struct = kStreamInStruct,
    stream_implicit = kStreamImplicit,
    stream_0 = 0,
    stream_1,
    stream_2,
    stream_3,
    stream_4,
    stream_5,
    stream_6,
    stream_7,
    stream_8,
    stream_9,
};

// One number per row of the table, in its order.
enum class Entry : std::uint16_t {
#define PASS(name, kind, stream) name,
#define CALL(name, kind, stream, params) name,
#define HOOK(name, kind, stream, params, args) name,
#define SUBMIT(name, kind, stream) name,
#include "shim/entry_points.def"
#undef PASS
#undef CALL
#undef HOOK
#undef SUBMIT
    none, // also the number of rows
};

// One number per row that is intercepted (HOOK, SUBMIT), in the table's order.
enum class Hook : std::uint16_t {
#define PASS(name, kind, stream)
#define CALL(name, kind, stream, params)
#define HOOK(name, kind, stream, params, args) name,
#define SUBMIT(name, kind, stream) name,
#include "shim/entry_points.def"
#undef PASS
#undef CALL
#undef HOOK
#undef SUBMIT
    none, // also the number of hooks
};

inline constexpr std::size_t kEntryCount = static_cast<std::size_t>(Entry::none);
inline constexpr std::size_t kHookCount = static_cast<std::size_t>(Hook::none);

// The row with exactly this name, or Entry::none. `name` must not be null. Constant time: one hash
// of the name and, nearly always, one comparison. Callable before any initialisation.
Entry find_entry(const char* name);

// What the row says. `entry` must not be Entry::none.
const char* entry_name(Entry entry);
Kind entry_kind(Entry entry);
std::int8_t entry_stream(Entry entry);

// The row's place among the intercepted ones, Hook::none when the row is not intercepted.
Hook entry_hook(Entry entry);

// The name of an intercepted entry point. `hook` must not be Hook::none.
const char* hook_name(Hook hook);

} // namespace cachealloc::shim
