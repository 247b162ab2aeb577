// A preload that watches the driver through CUPTI from the first call on: whatever door a call came
// by, a pointer of cuGetProcAddress, an exported symbol or an export table, CUPTI sees it.
//
// CUPTI_WATCH=PATH names the libcupti to load; without it this library does nothing. At exit one
// line on stderr, `cupti-watch: {...}`:
//   submits          per driver function that submits work: calls that CUPTI saw, and calls that
//   the
//                    shim's table counted (the testing build with CACHEALLOC_TEST_COUNT=1), or -1
//                    where the table has no such name
//   device_pointers  who asked for device addresses of pinned memory: library, size, flags, count
//   pinned           who allocated pinned memory, likewise
// CUPTI's headers are not needed: the few declarations below are CUPTI's published interface, which
// keeps its layout from one release to the next.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

namespace {

// cupti_callbacks.h: CUpti_CallbackData, CUpti_CallbackDomain, CUpti_ApiCallbackSite.
struct CallbackData {
    int site; // 0 on entry, 1 on exit
    const char* function_name;
    const void* parameters;
    void* return_value;
    const char* symbol_name;
    void* context;
    std::uint32_t context_uid;
    std::uint64_t* correlation_data;
    std::uint32_t correlation_id;
};
constexpr int kDriverApi = 1;
constexpr int kEnter = 0;
using Callback = void (*)(void* user, int domain, std::uint32_t id, const CallbackData* data);

// generated_cuda_meta.h: the parameters of the calls that matter here begin like this.
struct HostAllocation { // cuMemHostAlloc, cuMemAllocHost_v2 (without flags)
    void** pointer;
    std::size_t bytes;
    unsigned flags;
};
struct HostRegistration { // cuMemHostRegister_v2
    void* pointer;
    std::size_t bytes;
    unsigned flags;
};
struct DevicePointerQuery { // cuMemHostGetDevicePointer_v2
    void* device;
    void* pointer;
    unsigned flags;
};

constexpr std::size_t kMostIds = 4096;
struct Seen {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<const char*> name{nullptr};
};
std::array<Seen, kMostIds> seen;

using Key =
    std::tuple<std::string, std::string, std::size_t, unsigned>; // library, call, bytes, flags
struct Pinned {
    std::mutex mutex;
    std::map<std::uintptr_t, std::pair<std::size_t, unsigned>> blocks; // address -> bytes, flags
    std::map<Key, std::uint64_t> allocations;
    std::map<Key, std::uint64_t> queries;
};

// Never destroyed: callbacks may come until the process is gone.
Pinned& pinned() {
    static Pinned* const state = new Pinned;
    return *state;
}

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> heads) {
    for (std::string_view head : heads) {
        if (text.substr(0, head.size()) == head) return true;
    }
    return false;
}

// The first library up the stack that is not CUDA's own plumbing.
std::string calling_library() {
    std::array<void*, 40> frames{};
    const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
    for (int i = 1; i < depth; ++i) {
        Dl_info info{};
        if (dladdr(frames[static_cast<std::size_t>(i)], &info) == 0 || info.dli_fname == nullptr)
            continue;
        std::string_view name = info.dli_fname;
        name = name.substr(name.rfind('/') + 1);
        if (begins_with_any(name, {"libcuda.", "libcupti", "libcudart", "libcachealloc"})) continue;
        return std::string(name);
    }
    return "?";
}

void note_block(const char* call, void* address, std::size_t bytes, unsigned flags) {
    const std::string library = calling_library();
    Pinned& state = pinned();
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.blocks[reinterpret_cast<std::uintptr_t>(address)] = {bytes, flags};
    ++state.allocations[{library, call, bytes, flags}];
}

void note_query(const char* call, const void* address) {
    const std::string library = calling_library();
    Pinned& state = pinned();
    const std::lock_guard<std::mutex> lock(state.mutex);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    std::pair<std::size_t, unsigned> block{0,
                                           0}; // 0 bytes: memory that nobody was seen to allocate
    auto next = state.blocks.upper_bound(at);
    if (next != state.blocks.begin() &&
        at < std::prev(next)->first + std::prev(next)->second.first) {
        block = std::prev(next)->second;
    }
    ++state.queries[{library, call, block.first, block.second}];
}

void watch_pinned(const CallbackData& data) {
    const char* const name = data.function_name;
    if (data.site == kEnter) {
        if (std::strncmp(name, "cuMemHostGetDevicePointer", 25) == 0) {
            note_query(name, static_cast<const DevicePointerQuery*>(data.parameters)->pointer);
        }
        return;
    }
    if (data.return_value != nullptr && *static_cast<const int*>(data.return_value) != 0) return;
    if (std::strncmp(name, "cuMemHostAlloc", 14) == 0) {
        const auto* made = static_cast<const HostAllocation*>(data.parameters);
        note_block(name, *made->pointer, made->bytes, made->flags);
    } else if (std::strcmp(name, "cuMemAllocHost_v2") == 0) {
        const auto* made = static_cast<const HostAllocation*>(data.parameters);
        note_block(name, *made->pointer, made->bytes, 0);
    } else if (std::strncmp(name, "cuMemHostRegister", 17) == 0) {
        const auto* made = static_cast<const HostRegistration*>(data.parameters);
        note_block(name, made->pointer, made->bytes, made->flags);
    }
}

void on_call(void*, int domain, std::uint32_t id, const CallbackData* data) {
    if (domain != kDriverApi || id >= kMostIds || data->function_name == nullptr) return;
    if (data->site == kEnter) {
        seen[id].calls.fetch_add(1, std::memory_order_relaxed);
        seen[id].name.store(data->function_name, std::memory_order_relaxed);
    }
    if (begins_with_any(data->function_name, {"cuMemHost", "cuMemAllocHost"})) watch_pinned(*data);
}

// Without version and per-thread suffixes: the name that the documentation uses.
std::string plain_name(std::string_view name) {
    for (bool shorter = true; shorter;) {
        shorter = false;
        for (std::string_view tail : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"}) {
            if (name.size() > tail.size() && name.substr(name.size() - tail.size()) == tail) {
                name.remove_suffix(tail.size());
                shorter = true;
            }
        }
    }
    return std::string(name);
}

bool submits_work(std::string_view name) {
    return begins_with_any(name,
                           {"cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch", "cuGraphUpload",
                            "cuMemPrefetch", "cuMemDiscard", "cuMemBatchDecompress",
                            "cuStreamAddCallback", "cuStreamWriteValue", "cuStreamWaitValue",
                            "cuStreamBatchMemOp", "cuMemMapArrayAsync"});
}

std::map<std::string, long long> counted_by_the_table() {
    using Count = unsigned long long (*)(const char*);
    using Name = const char* (*)(unsigned);
    const auto count = reinterpret_cast<Count>(dlsym(RTLD_DEFAULT, "cachealloc_test_submits"));
    const auto name = reinterpret_cast<Name>(dlsym(RTLD_DEFAULT, "cachealloc_test_submit_name"));
    std::map<std::string, long long> counted;
    if (count == nullptr || name == nullptr) return counted;
    for (unsigned i = 0; name(i) != nullptr; ++i)
        counted[plain_name(name(i))] += static_cast<long long>(count(name(i)));
    return counted;
}

std::string list_of(const std::map<Key, std::uint64_t>& rows) {
    std::string text;
    for (const auto& [key, count] : rows) {
        const auto& [library, call, bytes, flags] = key;
        text += (text.empty() ? "[\"" : ", [\"") + library + "\", \"" + call + "\", " +
                std::to_string(bytes) + ", " + std::to_string(flags) + ", " +
                std::to_string(count) + "]";
    }
    return "[" + text + "]";
}

void report() {
    std::map<std::string, std::uint64_t> submits;
    std::uint64_t all = 0;
    for (const Seen& one : seen) {
        const std::uint64_t calls = one.calls.load();
        all += calls;
        if (calls != 0 && submits_work(one.name.load()))
            submits[plain_name(one.name.load())] += calls;
    }
    const std::map<std::string, long long> counted = counted_by_the_table();
    std::string rows;
    for (const auto& [name, calls] : submits) {
        const auto found = counted.find(name);
        const long long ours = found == counted.end() ? -1 : found->second;
        rows += (rows.empty() ? "\"" : ", \"") + name + "\": [" + std::to_string(calls) + ", " +
                std::to_string(ours) + "]";
    }
    Pinned& state = pinned();
    const std::lock_guard<std::mutex> lock(state.mutex);
    std::fprintf(stderr,
                 "cupti-watch: {\"pid\": %d, \"driver_calls\": %llu, \"table_names\": %zu, "
                 "\"submits\": {%s}, \"device_pointers\": %s, \"pinned\": %s}\n",
                 static_cast<int>(getpid()), static_cast<unsigned long long>(all), counted.size(),
                 rows.c_str(), list_of(state.queries).c_str(), list_of(state.allocations).c_str());
}

template <class Function>
Function look_up(void* library, const char* name) {
    return reinterpret_cast<Function>(dlsym(library, name));
}

std::atomic<bool> watching{false};

// Subscribes; null, or why that was not possible.
const char* subscribe_with(const char* file) {
    void* const cupti = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (cupti == nullptr) return "not loaded";
    const auto subscribe = look_up<int (*)(void**, Callback, void*)>(cupti, "cuptiSubscribe");
    const auto enable = look_up<int (*)(std::uint32_t, void*, int)>(cupti, "cuptiEnableDomain");
    if (subscribe == nullptr || enable == nullptr) return "functions missing";
    void* subscriber = nullptr;
    if (subscribe(&subscriber, on_call, nullptr) != 0) return "cuptiSubscribe failed";
    if (enable(1, subscriber, kDriverApi) != 0) return "cuptiEnableDomain failed";
    return nullptr;
}

// At the start of the process, and where CUPTI refuses that, once more when the driver starts.
void start(const char* when) {
    static std::string file;
    if (const char* const path = std::getenv("CUPTI_WATCH")) {
        file = path;
        unsetenv("CUPTI_WATCH"); // for this process and none of its children
    }
    if (file.empty() || watching.exchange(true)) return;
    std::array<void*, 4> warm{};
    (void)backtrace(warm.data(), static_cast<int>(warm.size())); // loads what it needs
    if (const char* const why = subscribe_with(file.c_str())) {
        std::fprintf(stderr, "cupti-watch-failed: %s, %s: %s\n", when, why, file.c_str());
        watching = false;
        return;
    }
    std::atexit(report);
}

__attribute__((constructor)) void start_early() {
    start("at the start of the process");
}

} // namespace

// The driver calls this in the library that CUDA_INJECTION64_PATH names.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
    start("at the start of the driver");
    return 1;
}
