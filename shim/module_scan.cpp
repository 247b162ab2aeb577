#include "shim/module_scan.h"

#include "shim/object_walk.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cachealloc::shim {

namespace {

enum class State : std::uint8_t { loading, loaded, gone };

struct Module {
    trace::ModuleRecord record;
    std::uint64_t name_hash; // of the loader's name, which the recorded path may differ from
    std::uint64_t round;     // the last scan that saw it
    State state;
};

// In memory that is only touched as far as it is used.
constexpr std::size_t kMaxModules = 4096;
// Starts of the modules in the log: open addressing, 0 is free.
constexpr std::size_t kKnownSlots = 2 * kMaxModules;
constexpr std::size_t kProbes = 64;

constinit std::atomic<Recorder*> g_recorder{nullptr};
constinit std::atomic<bool> g_replaced{false};
constinit std::atomic<std::uint64_t> g_adds{0};
constinit std::atomic<std::uint64_t> g_subs{0};
std::atomic<std::uintptr_t> g_known[kKnownSlots];

// The rest belongs to whoever holds this.
constinit std::mutex g_scan;
Module* g_modules = nullptr;
std::size_t g_count = 0;
std::uint64_t g_round = 0;

std::size_t slot_of(std::uintptr_t start) {
    return (start >> 12) * 0x9e3779b97f4a7c15 >> 51;
}
static_assert(kKnownSlots == std::size_t{1} << 13);

std::uint64_t hash_of(const char* text) {
    std::uint64_t hash = 14695981039346656037U;
    for (; *text != '\0'; ++text)
        hash = (hash ^ static_cast<unsigned char>(*text)) * 1099511628211U;
    return hash;
}

// The notes of loaded segments lie in memory.
void find_build_id(const dl_phdr_info& info, trace::ModuleRecord& record) {
    for (const ElfW(Phdr)* part = info.dlpi_phdr; part != info.dlpi_phdr + info.dlpi_phnum;
         ++part) {
        if (part->p_type != PT_NOTE) continue;
        const auto* note = reinterpret_cast<const char*>(info.dlpi_addr + part->p_vaddr);
        std::size_t left = part->p_memsz;
        const std::size_t align = part->p_align == 8 ? 8 : 4;
        const auto padded = [align](std::size_t size) { return (size + align - 1) & ~(align - 1); };
        while (left >= sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) header;
            std::memcpy(&header, note, sizeof header);
            const std::size_t content = padded(sizeof header + header.n_namesz);
            const std::size_t whole = padded(content + header.n_descsz);
            if (content + header.n_descsz > left) break;
            if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
                std::memcmp(note + sizeof header, "GNU", 4) == 0) {
                const std::size_t bytes =
                    std::min<std::size_t>(header.n_descsz, sizeof record.build_id);
                std::memcpy(record.build_id, note + content, bytes);
                record.build_id_bytes = static_cast<std::uint16_t>(bytes);
                return;
            }
            if (whole >= left) break;
            note += whole;
            left -= whole;
        }
    }
}

// What is too long loses its front: the file's name says most.
void set_path(trace::ModuleRecord& record, std::string_view directory, std::string_view name) {
    char whole[2 * sizeof record.path + 1];
    std::size_t length = 0;
    for (const std::string_view part : {directory, name}) {
        if (part.empty()) continue;
        if (length != 0) whole[length++] = '/';
        const std::size_t taken = std::min(part.size(), sizeof record.path);
        std::memcpy(whole + length, part.data() + part.size() - taken, taken);
        length += taken;
    }
    const std::size_t kept = std::min(length, sizeof record.path);
    std::memcpy(record.path, whole + length - kept, kept);
    record.path_bytes = static_cast<std::uint16_t>(kept);
}

void find_path(const dl_phdr_info& info, trace::ModuleRecord& record) {
    char text[4096];
    const char* const name = info.dlpi_name == nullptr ? "" : info.dlpi_name;
    if (name[0] == '\0') { // the main program
        const ssize_t length = readlink("/proc/self/exe", text, sizeof text);
        set_path(record, {}, {text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))});
    } else if (name[0] != '/' && std::strchr(name, '/') != nullptr &&
               getcwd(text, sizeof text) != nullptr) {
        set_path(record, text, name);
    } else {
        set_path(record, {}, name); // absolute, or the vDSO
    }
}

struct Walk {
    std::size_t cursor = 0; // objects come in the order in which they were loaded
    std::size_t left_out = 0;
};

Module* find_known(Walk& walk, const Module& found) {
    for (std::size_t i = 0; i < g_count; ++i) {
        const std::size_t at = (walk.cursor + i) % g_count;
        Module& known = g_modules[at];
        if (known.record.start != found.record.start || known.record.end != found.record.end ||
            known.record.bias != found.record.bias || known.name_hash != found.name_hash ||
            known.record.build_id_bytes != found.record.build_id_bytes ||
            std::memcmp(known.record.build_id, found.record.build_id,
                        sizeof found.record.build_id) != 0)
            continue;
        // Without a build id an unloaded file and one that came back may differ.
        if (known.state == State::gone && known.record.build_id_bytes == 0) continue;
        walk.cursor = at + 1;
        return &known;
    }
    return nullptr;
}

void note_change_counts(const dl_phdr_info& info) {
    g_adds.store(info.dlpi_adds, std::memory_order_relaxed);
    g_subs.store(info.dlpi_subs, std::memory_order_relaxed);
}

int visit(dl_phdr_info* info, std::size_t, void* argument) {
    static const char here = 0;
    Walk& walk = *static_cast<Walk*>(argument);
    note_change_counts(*info);
    Module found{};
    find_range(*info, found.record);
    if (found.record.end == 0) return 0;
    find_build_id(*info, found.record);
    found.name_hash = hash_of(info->dlpi_name == nullptr ? "" : info->dlpi_name);
    found.round = g_round;
    if (Module* const known = find_known(walk, found)) {
        known->round = g_round;
        if (known->state == State::gone) known->state = State::loading;
        return 0;
    }
    if (g_count == kMaxModules) {
        ++walk.left_out;
        return 0;
    }
    find_path(*info, found.record);
    const auto own = reinterpret_cast<std::uintptr_t>(&here);
    if (own >= found.record.start && own < found.record.end) found.record.flags = trace::kOwnModule;
    found.state = State::loading;
    g_modules[g_count++] = found;
    return 0;
}

void write(Recorder& recorder, Module& module, trace::ModuleChange change) {
    module.record.change = change;
    module.record.time = recorder.now();
    recorder.module(module.record);
}

void learn(std::uintptr_t start) {
    for (std::size_t i = 0; i < kProbes; ++i) {
        std::atomic<std::uintptr_t>& slot = g_known[(slot_of(start) + i) % kKnownSlots];
        const std::uintptr_t held = slot.load(std::memory_order_relaxed);
        if (held == start) return;
        if (held != 0) continue;
        slot.store(start, std::memory_order_relaxed);
        return;
    }
}

// Code that is loaded where other code has been makes what libunwind remembers wrong for good: its
// cache is keyed by addresses alone, and unw_flush_cache() does not reach it.
bool replaces_other(const Module& loaded) {
    return std::any_of(g_modules, g_modules + g_count, [&](const Module& old) {
        return old.state == State::gone && old.record.start < loaded.record.end &&
               loaded.record.start < old.record.end;
    });
}

void write_changes(Recorder& recorder, const Walk& walk) {
    bool unloaded = false;
    for (Module* module = g_modules; module != g_modules + g_count; ++module) {
        if (module->state != State::loaded || module->round == g_round) continue;
        module->state = State::gone;
        write(recorder, *module, trace::ModuleChange::unload);
        unloaded = true;
    }
    if (unloaded) {
        recorder.modules_changed();
        for (std::atomic<std::uintptr_t>& slot : g_known)
            slot.store(0, std::memory_order_relaxed);
    }
    bool replaced = walk.left_out != 0; // unknown: rather too careful
    for (Module* module = g_modules; module != g_modules + g_count; ++module) {
        if (module->state == State::gone) continue;
        if (module->state == State::loading) {
            replaced = replaced || replaces_other(*module);
            module->state = State::loaded;
            write(recorder, *module, trace::ModuleChange::load);
        }
        learn(module->record.start);
    }
    if (walk.left_out != 0) recorder.mark_seen(trace::kModulesFull);
    if (replaced && !g_replaced.exchange(true)) recorder.mark_seen(trace::kUnwinderReplaced);
}

} // namespace

void find_range(const dl_phdr_info& info, trace::ModuleRecord& record) {
    std::uint64_t start = ~std::uint64_t{0};
    std::uint64_t end = 0;
    for (const ElfW(Phdr)* part = info.dlpi_phdr; part != info.dlpi_phdr + info.dlpi_phnum;
         ++part) {
        if (part->p_type != PT_LOAD) continue;
        start = std::min<std::uint64_t>(start, part->p_vaddr & ~std::uint64_t{4095});
        end = std::max<std::uint64_t>(end, part->p_vaddr + part->p_memsz);
    }
    record.bias = info.dlpi_addr;
    record.start = end == 0 ? 0 : info.dlpi_addr + start;
    record.end = end == 0 ? 0 : info.dlpi_addr + end;
}

bool scan_modules() {
    Recorder* const recorder = g_recorder.load(std::memory_order_acquire);
    if (recorder == nullptr || !lock_briefly(g_scan)) return false;
    const std::lock_guard scan(g_scan, std::adopt_lock);
    if (!lock_briefly(object_walk_mutex())) return false;
    Walk walk;
    {
        const std::lock_guard objects(object_walk_mutex(), std::adopt_lock);
        ++g_round;
        dl_iterate_phdr(visit, &walk);
    }
    write_changes(*recorder, walk);
    return true;
}

void start_module_log(Recorder& recorder) {
    void* const memory = mmap(nullptr, kMaxModules * sizeof(Module), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        recorder.mark_seen(trace::kModulesFull);
        return;
    }
    g_modules = static_cast<Module*>(memory);
    g_recorder.store(&recorder, std::memory_order_release);
    scan_modules();
}

bool module_known(std::uintptr_t start) {
    for (std::size_t i = 0; i < kProbes; ++i) {
        const std::uintptr_t held =
            g_known[(slot_of(start) + i) % kKnownSlots].load(std::memory_order_relaxed);
        if (held == start) return true;
        if (held == 0) return false;
    }
    return true;
}

void give_up_on_module(std::uintptr_t start) {
    learn(start);
}

ObjectChanges changes_since_scan() {
    ObjectChanges changes;
    if (!lock_briefly(object_walk_mutex())) return changes;
    const std::lock_guard objects(object_walk_mutex(), std::adopt_lock);
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* answer) {
            *static_cast<ObjectChanges*>(answer) = {
                info->dlpi_adds != g_adds.load(std::memory_order_relaxed),
                info->dlpi_subs != g_subs.load(std::memory_order_relaxed)};
            return 1;
        },
        &changes);
    return changes;
}

bool code_replaced() {
    return g_replaced.load(std::memory_order_relaxed);
}

void stop_module_log() {
    g_recorder.store(nullptr, std::memory_order_release);
}

} // namespace cachealloc::shim
