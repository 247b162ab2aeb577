#include "shim/entry_points.h"

#include <array>
#include <string_view>

namespace cachealloc::shim {
namespace {

struct Row {
    std::string_view name;
    Kind kind;
    std::int8_t stream;
    bool hooked;
};

// Used by the compiler only; the shim carries Tables, which holds no pointers.
constexpr Row kRows[] = {
#define PASS(name, kind, stream) {#name, Kind::kind, stream_##stream, false},
#define CALL(name, kind, stream, params) {#name, Kind::kind, stream_##stream, false},
#define HOOK(name, kind, stream, params, args) {#name, Kind::kind, stream_##stream, true},
#define SUBMIT(name, kind, stream) {#name, Kind::kind, stream_##stream, true},
#include "shim/entry_points.def"
#undef PASS
#undef CALL
#undef HOOK
#undef SUBMIT
};
static_assert(std::size(kRows) == kEntryCount);

constexpr std::size_t text_size() {
    std::size_t size = 0;
    for (const Row& row : kRows)
        size += row.name.size() + 1;
    return size;
}

constexpr std::size_t kSlots = 4096; // six times the rows: nearly every name has a slot of its own
static_assert(kEntryCount * 4 < kSlots && (kSlots & (kSlots - 1)) == 0);
static_assert(text_size() < 65536, "offsets are 16 bits");

constexpr std::uint32_t hash_step(std::uint32_t hash, char c) {
    return (hash ^ static_cast<unsigned char>(c)) * 16777619U;
}

constexpr std::size_t slot_of(std::uint32_t hash) {
    return (hash ^ (hash >> 15)) & (kSlots - 1);
}

struct Tables {
    std::array<char, text_size()> text{};
    std::array<std::uint16_t, kEntryCount> offset{};
    std::array<Kind, kEntryCount> kind{};
    std::array<std::int8_t, kEntryCount> stream{};
    std::array<Hook, kEntryCount> hook{};
    std::array<std::uint16_t, kHookCount> entry_of_hook{};
    std::array<std::uint16_t, kSlots> slot{}; // row number + 1, 0 when empty; linear probing
};

constexpr Tables make_tables() {
    Tables tables;
    std::size_t end = 0;
    std::size_t hooks = 0;
    for (std::size_t i = 0; i < kEntryCount; ++i) {
        const Row& row = kRows[i];
        tables.offset[i] = static_cast<std::uint16_t>(end);
        std::uint32_t hash = 2166136261U;
        for (char c : row.name) {
            tables.text[end++] = c;
            hash = hash_step(hash, c);
        }
        ++end;
        tables.kind[i] = row.kind;
        tables.stream[i] = row.stream;
        tables.hook[i] = Hook::none;
        if (row.hooked) {
            tables.entry_of_hook[hooks] = static_cast<std::uint16_t>(i);
            tables.hook[i] = static_cast<Hook>(hooks++);
        }
        std::size_t slot = slot_of(hash);
        while (tables.slot[slot] != 0)
            slot = (slot + 1) & (kSlots - 1);
        tables.slot[slot] = static_cast<std::uint16_t>(i + 1);
    }
    return tables;
}

constexpr Tables kTables = make_tables();

bool same(const char* a, const char* b) {
    while (*a == *b && *a != '\0') {
        ++a;
        ++b;
    }
    return *a == *b;
}

} // namespace

Entry find_entry(const char* name) {
    // Most names asked for in a process are not the driver's: they end here. cublas*, cudnn*,
    // curl_* have no capital after "cu".
    if (name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z') return Entry::none;
    std::uint32_t hash = 2166136261U;
    for (const char* c = name; *c != '\0'; ++c)
        hash = hash_step(hash, *c);
    for (std::size_t slot = slot_of(hash); kTables.slot[slot] != 0;
         slot = (slot + 1) & (kSlots - 1)) {
        const std::size_t row = kTables.slot[slot] - 1U;
        if (same(name, kTables.text.data() + kTables.offset[row])) return static_cast<Entry>(row);
    }
    return Entry::none;
}

const char* entry_name(Entry entry) {
    return kTables.text.data() + kTables.offset[static_cast<std::size_t>(entry)];
}

Kind entry_kind(Entry entry) {
    return kTables.kind[static_cast<std::size_t>(entry)];
}

std::int8_t entry_stream(Entry entry) {
    return kTables.stream[static_cast<std::size_t>(entry)];
}

Hook entry_hook(Entry entry) {
    return kTables.hook[static_cast<std::size_t>(entry)];
}

const char* hook_name(Hook hook) {
    return entry_name(static_cast<Entry>(kTables.entry_of_hook[static_cast<std::size_t>(hook)]));
}

} // namespace cachealloc::shim
