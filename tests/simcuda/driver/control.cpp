// The interface for tests (see ../control.h), and the verdict at the end of the process.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "guard.h"

namespace simcuda {
namespace {

// Takes the lock for a call that is not a driver call. Nothing happens in a forked child.
class Control {
  public:
    Control() {
        if (!World::get().forked) {
            lock_ = Lock(World::get().mutex);
            outer_ = self().lock;
            self().lock = &lock_;
        }
    }
    ~Control() {
        if (lock_.owns_lock()) {
            self().lock = outer_;
        }
    }
    Control(const Control&) = delete;
    Control& operator=(const Control&) = delete;
    explicit operator bool() const { return lock_.owns_lock(); }

  private:
    Lock lock_;
    Lock* outer_ = nullptr;
};

// Runs after the program's own exit handlers: what was submitted and never waited for still gets
// checked, then the findings decide the exit status.
__attribute__((destructor)) void verdict() {
    bool bad = false;
    {
        Control control;
        World& w = World::get();
        if (!control || !w.initialised) {
            return;
        }
        w.run_until(w.now() + 3'600'000'000'000ULL);
        w.ended = true;
        bad = (w.races > 0 || w.errors > 0) && w.setting("expect_races") == 0;
        if (bad) {
            std::fprintf(stderr, "simcuda: %llu races, %llu errors (seed %llu)\n",
                         static_cast<unsigned long long>(w.races),
                         static_cast<unsigned long long>(w.errors),
                         static_cast<unsigned long long>(w.setting("seed")));
        }
    }
    if (bad) {
        std::fflush(nullptr);
        _exit(86);
    }
}

} // namespace
} // namespace simcuda

using namespace simcuda;

SIM_EXPORT std::uint64_t simcuda_calls(const char* entry) {
    Control control;
    const EntryRow* r = row(entry);
    return r == nullptr ? 0 : r->calls;
}

SIM_EXPORT void simcuda_reset_calls() {
    Control control;
    for (unsigned i = 0; i < static_cast<unsigned>(Entry::count); ++i) {
        row(static_cast<Entry>(i)).calls = 0;
    }
}

SIM_EXPORT std::uint64_t simcuda_races() {
    Control control;
    return World::get().races;
}

SIM_EXPORT std::uint64_t simcuda_errors() {
    Control control;
    return World::get().errors;
}

SIM_EXPORT void simcuda_forget_findings() {
    Control control;
    World::get().races = 0;
    World::get().errors = 0;
}

SIM_EXPORT void simcuda_fail(const char* entry, std::uint64_t nth, int code, std::uint64_t count) {
    Control control;
    EntryRow* r = row(entry);
    if (r == nullptr) {
        std::fprintf(stderr, "simcuda: no entry point \"%s\" to fail\n", entry);
        return;
    }
    r->fail_in = count == 0 ? 0 : nth;
    r->fail_with = static_cast<CUresult>(code);
    r->fail_count = count;
}

SIM_EXPORT std::uint64_t simcuda_now_ns() {
    Control control;
    return World::get().now();
}

SIM_EXPORT void simcuda_advance_ns(std::uint64_t ns) {
    Control control;
    if (control) {
        World::get().run_until(World::get().now() + ns);
    }
}

SIM_EXPORT int simcuda_set(const char* key, std::uint64_t value) {
    Control control;
    World& w = World::get();
    const auto it = w.settings.find(key);
    if (it == w.settings.end()) {
        return 0;
    }
    it->second = value;
    if (it->first == "memory_mb") {
        for (auto& device : w.devices) {
            device->memory.set_limit(value << 20);
        }
    }
    if (it->first == "seed") {
        w.reseed(value);
    }
    return 1;
}

SIM_EXPORT std::uint64_t simcuda_get(const char* key) {
    Control control;
    if (std::strcmp(key, "used_bytes") == 0) {
        std::uint64_t used = 0;
        for (const auto& device : World::get().devices) {
            used += device->memory.used();
        }
        return used;
    }
    return World::get().setting(key);
}

SIM_EXPORT void simcuda_mark_live(const void* p, std::size_t bytes) {
    Control control;
    World::get().live[reinterpret_cast<std::uintptr_t>(p)] = bytes;
}

SIM_EXPORT void simcuda_unmark_live(const void* p) {
    Control control;
    World::get().live.erase(reinterpret_cast<std::uintptr_t>(p));
}

SIM_EXPORT std::uint64_t simcuda_blocked_threads() {
    Control control;
    return World::get().blocked();
}

SIM_EXPORT void simcuda_host_access(const void* p, std::size_t bytes, int write) {
    Control control;
    World::get().host_access(reinterpret_cast<std::uintptr_t>(p), bytes, write != 0);
}
