#include "shim/trace_places.h"

#include "shim/log.h"
#include "shim/old_traces.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <linux/magic.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace cachealloc::shim {

namespace {

constexpr std::size_t kProgramName = 64;
constexpr int kMostOfOnePid = 99; // pids come back, and a process may run one program after another

// Text that grows in a fixed array and remembers whether all of it fitted.
class PathText {
  public:
    PathText(char* text, std::size_t room) : text_(text), room_(room) { text_[0] = '\0'; }

    void add(std::string_view part) {
        if (length_ + part.size() + 1 > room_) {
            fits_ = false;
            return;
        }
        std::memcpy(text_ + length_, part.data(), part.size());
        length_ += part.size();
        text_[length_] = '\0';
    }
    void add(long number) {
        char digits[24];
        std::snprintf(digits, sizeof digits, "%ld", number);
        add(std::string_view(digits));
    }
    bool fits() const { return fits_; }

  private:
    char* text_;
    std::size_t room_;
    std::size_t length_ = 0;
    bool fits_ = true;
};

bool is_in_memory(const char* directory) {
    struct statfs about {};
    if (statfs(directory, &about) != 0) return false;
    return about.f_type == TMPFS_MAGIC || about.f_type == RAMFS_MAGIC;
}

// Ours alone, so that nobody else can have put a link or a file into it.
bool is_private(const char* directory) {
    struct stat about {};
    return lstat(directory, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
           (about.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

const char* from_environment(const char* name) {
    const char* const value = secure_getenv(name);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
}

void host_name(char* text, std::size_t room) {
    if (gethostname(text, room) != 0) text[0] = '\0';
    text[room - 1] = '\0';
}

} // namespace

void program_name(char* text, std::size_t room) {
    char link[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", link, sizeof link);
    std::string_view name(link, length > 0 ? static_cast<std::size_t>(length) : 0);
    constexpr std::string_view kDeleted = " (deleted)"; // the kernel's mark, not the name's
    if (name.ends_with(kDeleted)) name.remove_suffix(kDeleted.size());
    name.remove_prefix(name.rfind('/') + 1);
    name = name.substr(0, std::min(kProgramName, room - 1));
    if (name.empty()) name = "program";
    char* const end = std::transform(name.begin(), name.end(), text,
                                     [](char c) { return c > ' ' && c < '\x7f' ? c : '_'; });
    *end = '\0';
}

TracePlaces::TracePlaces() {
    if (getauxval(AT_SECURE) != 0) return;
    if (const char* const name = from_environment("CACHEALLOC_TRACE")) {
        take_name(name);
        return;
    }
    if (const char* const directory = from_environment("CACHEALLOC_TRACE_DIR")) {
        take_directory(directory);
    }
    const char* const temporary = from_environment("TMPDIR");
    for (const bool memory : {false, true}) { // a file in memory takes it from the program
        if (temporary != nullptr) take_private(temporary, memory);
        take_private("/var/tmp", memory);
        take_private("/tmp", memory);
    }
}

void TracePlaces::take_name(const char* pattern) {
    named_ = true;
    PathText path(texts_[0].data(), kPathBytes);
    char text[256];
    for (const char* at = pattern; *at != '\0'; ++at) {
        const char what = at[0] == '%' ? at[1] : '\0';
        switch (what) {
        case 'p':
            path.add(getpid());
            break;
        case 'h':
            host_name(text, sizeof text);
            path.add(std::string_view(text));
            break;
        case 'e':
            program_name(text, sizeof text);
            path.add(std::string_view(text));
            break;
        case '%':
            path.add("%");
            break;
        default:
            if (at[0] == '%') {
                logf(LogLevel::warning,
                     "CACHEALLOC_TRACE: %%%c is none of %%p (process), %%h (host), %%e (program), "
                     "%%%%: taken as it stands",
                     what != '\0' ? what : ' ');
            }
            path.add(std::string_view(at, 1));
            continue;
        }
        ++at;
    }
    if (!path.fits()) {
        log(LogLevel::warning, "CACHEALLOC_TRACE is too long a name: nothing is recorded");
        return;
    }
    pointers_[0] = texts_[0].data();
    size_ = 1;
}

void TracePlaces::take_directory(const char* directory) {
    const std::size_t before = size_;
    add(directory);
    directory_named_ = size_ != before;
}

void TracePlaces::take_private(const char* base, bool memory) {
    if (privates_ == kMost || base[0] != '/' || is_in_memory(base) != memory) return;
    Path& directory = private_[privates_];
    PathText text(directory.data(), kPathBytes);
    text.add(base);
    text.add("/cachealloc-");
    text.add(static_cast<long>(geteuid()));
    if (!text.fits()) return;
    for (std::size_t i = 0; i < privates_; ++i) {
        if (std::strcmp(private_[i].data(), directory.data()) == 0) return; // TMPDIR=/tmp
    }
    mkdir(directory.data(), S_IRWXU);
    if (!is_private(directory.data())) {
        struct stat about {};
        if (lstat(directory.data(), &about) == 0) {
            logf(LogLevel::warning,
                 "%s is not a directory of yours alone (mode 0700): not used for recordings",
                 directory.data());
        }
        return;
    }
    ++privates_;
    add(directory.data());
}

void TracePlaces::add(const char* directory) {
    if (size_ == kMost) return;
    char name[kProgramName + 1];
    program_name(name, sizeof name);
    for (int number = 1; number <= kMostOfOnePid; ++number) {
        PathText path(texts_[size_].data(), kPathBytes);
        path.add(directory);
        path.add("/");
        path.add(name);
        path.add(".");
        path.add(getpid());
        if (number != 1) {
            path.add("-");
            path.add(number);
        }
        path.add(".trace");
        struct stat about {};
        if (!path.fits()) return;
        if (lstat(texts_[size_].data(), &about) == 0) continue;
        pointers_[size_] = texts_[size_].data();
        ++size_;
        return;
    }
}

void TracePlaces::remove_old() const {
    for (std::size_t i = 0; i < privates_; ++i)
        remove_old_traces(private_[i].data(), kKept);
}

} // namespace cachealloc::shim
