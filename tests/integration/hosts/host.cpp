// A process that has nothing to do with this project: it allocates, throws, starts threads, looks
// names up. Built plain and with every sanitizer. With HOST_USES_CUDA set it also uses the driver
// as a CUDA runtime does. Ends with status 0 and prints "host ok", or says what went wrong.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <dlfcn.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

int failures = 0;

void check(bool ok, const char* what) {
    if (!ok) {
        std::printf("FAILED: %s\n", what);
        ++failures;
    }
}

int thread_count() {
    int count = 0;
    DIR* tasks = opendir("/proc/self/task");
    while (const dirent* entry = readdir(tasks))
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

int throwing(int depth) {
    const auto guard = std::make_unique<int>(depth);
    if (depth == 0) throw std::runtime_error("bottom");
    return throwing(depth - 1) + *guard;
}

void exceptions() {
    bool caught = false;
    try {
        throwing(20);
    } catch (const std::runtime_error& error) {
        caught = std::string(error.what()) == "bottom";
    }
    check(caught, "an exception reaches its handler");
}

void threads() {
    std::atomic<std::uint64_t> sum{0};
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < 4; ++i) {
        workers.emplace_back([&sum, i] {
            std::vector<std::string> texts;
            for (unsigned j = 0; j < 200; ++j)
                texts.emplace_back(64, static_cast<char>('a' + (i + j) % 26));
            exceptions();
            sum += texts.size();
        });
    }
    for (std::thread& worker : workers)
        worker.join();
    check(sum == 800, "threads run and end");
}

void look_ups() {
    check(dlsym(RTLD_DEFAULT, "malloc") != nullptr, "RTLD_DEFAULT finds malloc");
    check(dlsym(RTLD_NEXT, "malloc") != nullptr, "RTLD_NEXT finds malloc");
    dlerror();
    check(dlsym(RTLD_NEXT, "no_such_symbol") == nullptr, "an unknown name is not found");
    const char* error = dlerror();
    check(error != nullptr &&
              std::string(error).find("undefined symbol: no_such_symbol") != std::string::npos,
          "the C library's own error text");
}

void cuda() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    check(driver != nullptr, "the driver opens");
    if (driver == nullptr) return;
    using LookUp = int (*)(const char*, void**, int, std::uint64_t, int*);
    const auto first = reinterpret_cast<LookUp>(dlsym(driver, "cuGetProcAddress_v2"));
    LookUp look_up = nullptr;
    check(first("cuGetProcAddress", reinterpret_cast<void**>(&look_up), 12000, 0, nullptr) == 0,
          "the look-up finds itself");
    const auto find = [&](auto& function, const char* name, int version) {
        check(look_up(name, reinterpret_cast<void**>(&function), version, 0, nullptr) == 0, name);
    };
    int (*init)(unsigned) = nullptr;
    int (*retain)(void**, int) = nullptr;
    int (*set_current)(void*) = nullptr;
    int (*allocate)(std::uint64_t*, std::size_t) = nullptr;
    int (*release)(std::uint64_t) = nullptr;
    find(init, "cuInit", 2000);
    find(retain, "cuDevicePrimaryCtxRetain", 7000);
    find(set_current, "cuCtxSetCurrent", 4000);
    find(allocate, "cuMemAlloc", 3020);
    find(release, "cuMemFree", 3020);
    if (failures != 0) return;
    void* context = nullptr;
    check(init(0) == 0, "cuInit");
    check(retain(&context, 0) == 0, "cuDevicePrimaryCtxRetain");
    check(set_current(context) == 0, "cuCtxSetCurrent");
    std::uint64_t pointer = 0;
    for (int i = 0; i < 100; ++i) {
        check(allocate(&pointer, 1 << 20) == 0, "cuMemAlloc");
        check(release(pointer) == 0, "cuMemFree");
    }
    check(release(pointer) == 1, "a double free is refused as natively");
}

} // namespace

int main() {
    check(thread_count() == 1 || std::getenv("HOST_RUNTIME_HAS_THREADS") != nullptr,
          "no thread but the host's");
    exceptions();
    threads();
    look_ups();
    if (std::getenv("HOST_USES_CUDA") != nullptr) cuda();
    std::puts(failures == 0 ? "host ok" : "host failed");
    return failures == 0 ? 0 : 1;
}
