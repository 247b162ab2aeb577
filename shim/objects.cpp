#include "shim/objects.h"

#include "core/record/unwind/stack_unwinder.h"
#include "shim/caller.h"
#include "shim/module_scan.h"
#include "shim/object_walk.h"
#include "shim/real_dlsym.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <dlfcn.h>
#include <link.h>

namespace cachealloc::shim {

namespace {

// Set when a stack shows, or dlclose suggests, that the module log is behind.
constinit std::atomic<bool> g_scan_wanted{false};
constinit std::atomic<std::uintptr_t> g_unknown{0};
// Whether anything may have been unloaded since recording started.
constinit std::atomic<bool> g_unloaded{false};

void want_if_unknown(std::uintptr_t object_start) {
    if (module_known(object_start)) return;
    g_unknown.store(object_start, std::memory_order_relaxed);
    g_scan_wanted.store(true, std::memory_order_relaxed);
}

// Null before glibc 2.35: then nothing is walked, and the module log looks for changes itself.
constinit std::atomic<FindObjectFunction> g_find{nullptr};

// Asked once for each return address that the walker meets for the first time.
bool find_object(std::uintptr_t address, CodeObject& object) {
    dl_find_object found;
    const FindObjectFunction find = g_find.load(std::memory_order_relaxed);
    if (find == nullptr || find(reinterpret_cast<void*>(address), &found) != 0) return false;
    object.start = reinterpret_cast<std::uintptr_t>(found.dlfo_map_start);
    object.end = reinterpret_cast<std::uintptr_t>(found.dlfo_map_end);
    object.frame_header = static_cast<const std::byte*>(found.dlfo_eh_frame);
    want_if_unknown(object.start);
    return true;
}

void look_at_frames(const trace::Frame* frames, std::size_t count) {
    if (g_find.load(std::memory_order_relaxed) == nullptr) {
        if (changes_since_scan().loads) g_scan_wanted.store(true, std::memory_order_relaxed);
        return;
    }
    CodeObject object;
    for (std::size_t i = 0; i < count; ++i)
        find_object(frames[i] - 1, object);
}

void bring_log_up_to_date() {
    g_scan_wanted.store(false, std::memory_order_relaxed);
    const std::uintptr_t unknown = g_unknown.exchange(0, std::memory_order_relaxed);
    if (!scan_modules()) return;
    if (unknown != 0 && !module_known(unknown)) give_up_on_module(unknown);
}

bool libunwind_is_sound() {
    if (code_replaced()) return false;
    if (!g_unloaded.load(std::memory_order_relaxed)) return true;
    if (changes_since_scan().loads && !scan_modules()) return false;
    return !code_replaced();
}

// The shared object's name is what every distribution calls it.
using UnwBacktrace = int (*)(void**, int);

UnwBacktrace open_libunwind() {
    if (!lock_briefly(object_walk_mutex())) return nullptr;
    void* const library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    object_walk_mutex().unlock();
    if (library == nullptr) return nullptr;
    // unw_set_caching_policy() and unw_set_cache_size() are macros over these names. The first
    // may be a no-op that still returns 0 (Debian's build); both only make misses cheaper.
    constexpr int kPerThread = 2;
    if (void* const policy = real_dlsym(library, "_ULx86_64_set_caching_policy")) {
        using SetPolicy = int (*)(void*, int);
        void* const* const space =
            static_cast<void* const*>(real_dlsym(library, "_ULx86_64_local_addr_space"));
        if (space != nullptr) reinterpret_cast<SetPolicy>(policy)(*space, kPerThread);
        if (void* const size = real_dlsym(library, "_ULx86_64_set_cache_size")) {
            using SetSize = int (*)(void*, std::size_t, int);
            if (space != nullptr) reinterpret_cast<SetSize>(size)(*space, 1024, 0);
        }
    }
    return reinterpret_cast<UnwBacktrace>(real_dlsym(library, "unw_backtrace"));
}

class Stacks final : public StackSource {
  public:
    Stacks(UnwinderChoice choice, const UnwindPlatform& platform, bool check)
        : unwinder_(choice, platform, check) {}

    std::size_t capture(trace::Frame* frames, std::size_t room, bool& cut) override {
        const std::size_t count = unwinder_.capture(frames, room, cut);
        // Before the stack gets its number, which says how much of the module log it goes with.
        if (g_scan_wanted.load(std::memory_order_relaxed)) [[unlikely]]
            bring_log_up_to_date();
        return count;
    }

    StackUnwinder& unwinder() { return unwinder_; }

  private:
    StackUnwinder unwinder_;
};

alignas(Stacks) std::byte g_storage[sizeof(Stacks)];
constinit std::atomic<Stacks*> g_stacks{nullptr};

// Around the C library's dlclose. Nothing is walked meanwhile: what is remembered about addresses
// might be used for other code that has just been put there.
class Unloading {
  public:
    Unloading() : stacks_(g_stacks.load(std::memory_order_acquire)) {
        if (stacks_ != nullptr) stacks_->unwinder().before_unloading();
    }
    ~Unloading() {
        if (stacks_ == nullptr) return;
        const bool unloaded = changes_since_scan().unloads;
        if (unloaded) {
            g_unloaded.store(true, std::memory_order_relaxed);
            g_scan_wanted.store(true, std::memory_order_relaxed);
        }
        stacks_->unwinder().after_unloading(unloaded);
    }
    Unloading(const Unloading&) = delete;
    Unloading& operator=(const Unloading&) = delete;

  private:
    Stacks* const stacks_;
};

FindObjectFunction usable_find_object() {
#ifdef CACHEALLOC_TEST_SWITCHES
    if (getenv("CACHEALLOC_TEST_OLD_LOADER") != nullptr) return nullptr;
#endif
    return find_object_function();
}

int find_own(dl_phdr_info* info, std::size_t, void* result) {
    static const char here = 0;
    UnwindPlatform& platform = *static_cast<UnwindPlatform*>(result);
    trace::ModuleRecord record{};
    find_range(*info, record);
    const auto address = reinterpret_cast<std::uintptr_t>(&here);
    if (address < record.start || address >= record.end) return 0;
    platform.own_start = record.start;
    platform.own_end = record.end;
    return 1;
}

// CACHEALLOC_TEST_CHECK_STACKS=1: every walk is compared with libgcc's way.
bool check_stacks() {
#ifdef CACHEALLOC_TEST_SWITCHES
    const char* const text = getenv("CACHEALLOC_TEST_CHECK_STACKS");
    return text != nullptr && text[0] == '1';
#else
    return false;
#endif
}

} // namespace

StackSource* make_stack_source(UnwinderChoice choice) {
    UnwindPlatform platform;
    g_find.store(usable_find_object(), std::memory_order_relaxed);
    if (g_find.load(std::memory_order_relaxed) != nullptr) platform.find_object = find_object;
    if (choice != UnwinderChoice::gcc) platform.unw_backtrace = open_libunwind();
    platform.libunwind_is_sound = libunwind_is_sound;
    platform.unwound = look_at_frames;
    walk_objects(find_own, &platform);
    auto* const made = new (g_storage) Stacks(choice, platform, check_stacks());
    g_stacks.store(made, std::memory_order_release);
    return made;
}

void log_modules(Recorder& recorder) {
    start_module_log(recorder);
}

void publish_stack_counts(Recorder& recorder) {
    if (Stacks* const stacks = g_stacks.load(std::memory_order_acquire))
        stacks->unwinder().publish(recorder.counters());
}

void forget_objects_in_child() {
    stop_module_log();
    g_stacks.store(nullptr, std::memory_order_release);
}

} // namespace cachealloc::shim

// The only way, short of the C library's own, for code to go away.
extern "C" __attribute__((visibility("default"))) int dlclose(void* handle) {
    using Dlclose = int (*)(void*);
    static constinit std::atomic<Dlclose> real{nullptr};
    Dlclose found = real.load(std::memory_order_relaxed);
    if (found == nullptr) {
        found = reinterpret_cast<Dlclose>(cachealloc::shim::real_dlsym(RTLD_NEXT, "dlclose"));
        if (found == nullptr) return -1;
        real.store(found, std::memory_order_relaxed);
    }
    const cachealloc::shim::Unloading unloading;
    return found(handle);
}
