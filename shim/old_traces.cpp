#include "shim/old_traces.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <ctime>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cachealloc::shim {

namespace {

constexpr std::string_view kEnding = ".trace";

// <program>.<pid>.trace or <program>.<pid>-<n>.trace, and that process has ended.
bool may_be_removed(std::string_view name) {
    if (!name.ends_with(kEnding)) return false;
    name.remove_suffix(kEnding.size());
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || dot == 0) return false;
    const char* const end = name.data() + name.size();
    pid_t pid = 0;
    auto [rest, error] = std::from_chars(name.data() + dot + 1, end, pid);
    if (error != std::errc{} || pid <= 0) return false;
    if (rest != end && *rest == '-') {
        unsigned number = 0;
        rest = std::from_chars(rest + 1, end, number).ptr;
    }
    return rest == end && kill(pid, 0) != 0 && errno == ESRCH;
}

struct Old {
    timespec changed;
    std::array<char, 256> name;
};

bool newer(const Old& a, const Old& b) {
    return a.changed.tv_sec != b.changed.tv_sec ? a.changed.tv_sec > b.changed.tv_sec
                                                : a.changed.tv_nsec > b.changed.tv_nsec;
}

} // namespace

// The newest are kept in a heap whose top is the oldest of them: whatever falls out is removed.
void remove_old_traces(const char* directory, std::size_t keep) {
    constexpr std::size_t kMostKept = 64;
    std::array<Old, kMostKept> newest;
    std::size_t count = 0;
    keep = std::min(keep, kMostKept - 1);
    DIR* const list = opendir(directory);
    if (list == nullptr) return;
    const int folder = dirfd(list);
    while (const dirent* const entry = readdir(list)) {
        const std::string_view name(entry->d_name);
        struct stat about {};
        if (name.size() >= newest[0].name.size() || !may_be_removed(name) ||
            fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(about.st_mode) || about.st_uid != geteuid()) {
            continue;
        }
        Old& old = newest[count++];
        old.changed = about.st_mtim;
        *std::ranges::copy(name, old.name.begin()).out = '\0';
        std::push_heap(newest.begin(), newest.begin() + count, newer);
        if (count <= keep) continue;
        std::pop_heap(newest.begin(), newest.begin() + count, newer);
        unlinkat(folder, newest[--count].name.data(), 0);
    }
    closedir(list);
}

} // namespace cachealloc::shim
