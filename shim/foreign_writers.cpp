#include "shim/foreign_writers.h"

#include "shim/object_walk.h"

#include <atomic>
#include <cstring>
#include <iterator>

#include <dirent.h>
#include <link.h>
#include <unistd.h>

namespace cachealloc::shim {

namespace {

struct Writer {
    const char* library; // its file's name up to the version
    const char* device;  // prefix of the files through which it reaches device memory
};
constexpr Writer kWriters[] = {
    {"libibverbs.so", "/dev/infiniband/uverbs"},
    {"libgdrapi.so", "/dev/gdrdrv"},
    {"libcufile.so", "/dev/nvidia-fs"},
};

constexpr const char* kSubmitters[] = {"libnvoptix.so", "libnvcuvid.so", "libnvidia-encode.so",
                                       "libnvidia-opticalflow.so"};

bool has_open(const char* prefix) {
    DIR* const directory = opendir("/proc/self/fd");
    if (directory == nullptr) return false;
    bool found = false;
    while (const dirent* const entry = readdir(directory)) {
        char target[256];
        const ssize_t length =
            readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);
        if (length <= 0) continue;
        target[length] = '\0';
        if (std::strncmp(target, prefix, std::strlen(prefix)) == 0) {
            found = true;
            break;
        }
    }
    closedir(directory);
    return found;
}

bool is_file(const char* path, const char* library) {
    const char* const slash = std::strrchr(path, '/');
    const char* const name = slash != nullptr ? slash + 1 : path;
    return std::strncmp(name, library, std::strlen(library)) == 0;
}

// One bit for each writer's library that is loaded. Called under the loader's lock.
int note_library(dl_phdr_info* info, std::size_t, void* bits) {
    for (std::size_t i = 0; i < std::size(kWriters); ++i) {
        if (is_file(info->dlpi_name, kWriters[i].library)) *static_cast<unsigned*>(bits) |= 1U << i;
    }
    return 0;
}

} // namespace

bool foreign_writers_present() {
    static std::atomic<bool> seen{false};
    if (seen.load(std::memory_order_relaxed)) return true;
    unsigned loaded = 0;
    walk_objects(note_library, &loaded);
    for (std::size_t i = 0; i < std::size(kWriters); ++i) {
        if ((loaded >> i & 1) != 0 && has_open(kWriters[i].device)) {
            seen.store(true, std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

bool unseen_submitters_present() {
    static std::atomic<bool> seen{false};
    if (seen.load(std::memory_order_relaxed)) return true;
    bool found = false;
    const auto look = [](dl_phdr_info* info, std::size_t, void* result) {
        for (const char* const library : kSubmitters) {
            if (is_file(info->dlpi_name, library)) *static_cast<bool*>(result) = true;
        }
        return 0;
    };
    walk_objects(look, &found);
    if (found) seen.store(true, std::memory_order_relaxed);
    return found;
}

} // namespace cachealloc::shim
