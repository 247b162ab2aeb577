// The stacks and the module log of a process that loads and unloads code while it is recorded.
//
// usage: objects_test auto|libunwind|gcc PLUGIN OTHER_PLUGIN DIRECTORY
//
// Ends with status 0, or says what went wrong.
#include "core/record/recorder.h"
#include "shim/objects.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unwind.h>

using namespace cachealloc;

namespace {

int failures = 0;

void check(bool ok, const std::string& what) {
    if (ok) return;
    std::printf("FAILED: %s\n", what.c_str());
    ++failures;
}

StackSource* stacks = nullptr;

struct Captured {
    std::vector<trace::Frame> frames;
    std::vector<trace::Frame> wanted; // by libgcc
};

_Unwind_Reason_Code note(_Unwind_Context* context, void* frames) {
    static_cast<std::vector<trace::Frame>*>(frames)->push_back(_Unwind_GetIP(context));
    return _URC_NO_REASON;
}

[[gnu::noinline]] void capture(void* result) {
    Captured& captured = *static_cast<Captured*>(result);
    bool cut = false;
    captured.frames.resize(64);
    captured.frames.resize(stacks->capture(captured.frames.data(), 64, cut));
    captured.wanted.clear();
    _Unwind_Backtrace(note, &captured.wanted);
    while (!captured.wanted.empty() && captured.wanted.back() == 0)
        captured.wanted.pop_back();
}

// Calls through the plugin; says whether what it left on the stack is what libgcc finds.
void call_through(void* plugin, const std::string& when) {
    using Call = void (*)(void (*)(void*), void*);
    const auto call = reinterpret_cast<Call>(dlsym(plugin, "plugin_call"));
    for (int i = 0; i < 3; ++i) {
        Captured captured;
        call(capture, &captured);
        // This program holds the recorder itself, whose frames are left out where they come first.
        const auto start = reinterpret_cast<trace::Frame>(call);
        const auto in_plugin = [start](trace::Frame frame) { return frame - start < 64; };
        const auto wanted = std::find_if(captured.wanted.begin(), captured.wanted.end(), in_plugin);
        check(wanted != captured.wanted.end(), when + ": libgcc sees the plugin");
        check(std::equal(wanted, captured.wanted.end(), captured.frames.begin(),
                         captured.frames.end()),
              when + ": the stack from the plugin on is what libgcc finds");
    }
}

struct File {
    const trace::Header* header = nullptr;

    explicit File(const char* path) {
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        struct stat status {};
        fstat(file, &status);
        header = static_cast<const trace::Header*>(mmap(
            nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0));
        close(file);
    }

    std::vector<const trace::ModuleRecord*> modules() const {
        std::vector<const trace::ModuleRecord*> found;
        for (std::uint32_t i = 0; i < header->section_count; ++i) {
            const trace::Section& section = header->sections[i];
            if (section.type != trace::SectionType::modules) continue;
            const auto* const first = reinterpret_cast<const trace::ModuleRecord*>(
                reinterpret_cast<const char*>(header) + section.offset);
            for (std::uint64_t at = 0; at < section.used / sizeof *first; ++at)
                if (first[at].change != trace::ModuleChange::none) found.push_back(first + at);
        }
        return found;
    }
};

// "load" and "unload" of the modules whose path ends so, in order.
std::string changes(const File& file, std::string_view end) {
    std::string text;
    for (const trace::ModuleRecord* module : file.modules()) {
        if (!std::string_view(module->path, module->path_bytes).ends_with(end)) continue;
        text += module->change == trace::ModuleChange::load ? "load " : "unload ";
    }
    return text;
}

void check_main_program(const File& file) {
    std::size_t own = 0;
    for (const trace::ModuleRecord* module : file.modules()) {
        if ((module->flags & trace::kOwnModule) == 0) continue;
        ++own;
        const auto here = reinterpret_cast<std::uintptr_t>(&check_main_program);
        check(module->start <= here && here < module->end, "the range of the main program");
        check(module->build_id_bytes == 20, "its build id");
        check(std::string_view(module->path, module->path_bytes).ends_with("/objects_test"),
              "its path");
    }
    check(own == 1, "the main program is logged once, as the recorder's own");
    check(changes(file, "/libc.so.6") == "load ", "the C library is logged");
}

// Libraries come and go at one place while another thread captures too.
void storm(const char* plugin, const char* other) {
    std::atomic<bool> done{false};
    std::thread beside([&done] {
        Captured captured;
        do
            capture(&captured);
        while (!done);
    });
    for (int i = 0; i < 200; ++i) {
        void* const loaded = dlopen(i % 2 == 0 ? plugin : other, RTLD_NOW | RTLD_LOCAL);
        check(loaded != nullptr, "a plugin opens in the storm");
        if (loaded == nullptr) break;
        call_through(loaded, "storm");
        dlclose(loaded);
    }
    done = true;
    beside.join();
}

std::uintptr_t base_of(void* plugin) {
    const link_map* map = nullptr;
    dlinfo(plugin, RTLD_DI_LINKMAP, &map);
    return map->l_addr;
}

UnwinderChoice choice_named(std::string_view name) {
    if (name == "libunwind") return UnwinderChoice::libunwind;
    return name == "gcc" ? UnwinderChoice::gcc : UnwinderChoice::automatic;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    const std::string choice = argv[1];
    const std::string path =
        std::string(argv[4]) + "/objects." + choice + "." + std::to_string(getpid()) + ".trace";
    stacks = shim::make_stack_source(choice_named(choice));
    const char* const paths[] = {path.c_str()};
    RecorderSettings settings;
    settings.paths = paths;
    settings.path_count = 1;
    settings.ring_bytes = 1 << 20;
    settings.stacks = stacks;
    int error = 0;
    std::size_t index = 0;
    Recorder* const recorder = Recorder::start(settings, error, index);
    check(recorder != nullptr, "the recorder starts");
    if (recorder == nullptr) return 1;
    shim::log_modules(*recorder);
    const File file(path.c_str());
    unlink(path.c_str());
    check_main_program(file);

    void* plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    check(plugin != nullptr, "the plugin opens");
    const std::uintptr_t base = base_of(plugin);
    check(changes(file, argv[2]).empty(), "nothing is logged before a stack needs it");
    call_through(plugin, "loaded");
    check(changes(file, argv[2]) == "load ", "the plugin's load is logged");

    // One reference of two.
    check(dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) == plugin, "the plugin opens again");
    check(dlclose(plugin) == 0, "and is closed again");
    call_through(plugin, "still loaded");
    check(changes(file, argv[2]) == "load ", "it has not been unloaded");

    check(dlclose(plugin) == 0, "the plugin closes");
    plugin = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
    check(plugin != nullptr && base_of(plugin) == base, "the other one takes its place");
    call_through(plugin, "other code at the same place");
    check(changes(file, argv[2]) == "load unload ", "the plugin's unload is logged");
    check(changes(file, argv[3]) == "load ", "the other's load is logged");
    check((file.header->seen & trace::kUnwinderReplaced) != 0, "the replaced code is noted");

    const trace::Counters& counters = file.header->counters;
    shim::publish_stack_counts(*recorder);
    const bool walks = choice == "auto" && getenv("CACHEALLOC_TEST_OLD_LOADER") == nullptr;
    check((walks ? counters.stacks_walked : counters.stacks_unwound) == 9, "every stack as asked");
    dlclose(plugin);
    storm(argv[2], argv[3]);
    shim::publish_stack_counts(*recorder);
    check(counters.stacks_failed == 0 && counters.stacks_differed == 0, "no stack is wrong");
    std::puts(failures == 0 ? "objects ok" : "objects failed");
    return failures == 0 ? 0 : 1;
}
