#include "tools/exports/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace cachealloc::tools {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

/// The file that a path means, through symbolic links: replacing a link would leave its target.
std::string resolved(const std::string& path) {
    char* real = realpath(path.c_str(), nullptr);
    std::string result = real != nullptr ? real : path;
    std::free(real);
    return result;
}

} // namespace

OutputFile::OutputFile(const std::string& path, bool overwrite)
    : path_(path), overwrite_(overwrite), buffer_(kBufferBytes) {
    if (path == "-") {
        path_ = "standard output";
        descriptor_ = dup(STDOUT_FILENO);
        if (descriptor_ < 0) {
            fail("write to", errno);
        }
        return;
    }
    open(overwrite);
}

void OutputFile::open(bool overwrite) {
    struct stat status = {};
    if (stat(path_.c_str(), &status) == 0) {
        if (S_ISDIR(status.st_mode)) {
            fail("write", EISDIR);
        }
        if (!S_ISREG(status.st_mode)) {
            descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
            if (descriptor_ < 0) {
                fail("write", errno);
            }
            return;
        }
        if (!overwrite) {
            throw OutputError(path_ + " exists: choose another name, or -f to overwrite it");
        }
        path_ = resolved(path_);
    }
    std::string name = path_ + ".XXXXXX";
    descriptor_ = mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) {
        fail("write", errno);
    }
    temporary_ = std::move(name);
    // As any other new file: mkostemp makes files for their owner alone.
    const mode_t mask = umask(0);
    umask(mask);
    fchmod(descriptor_, 0666 & ~mask);
}

OutputFile::~OutputFile() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
    if (!temporary_.empty()) {
        unlink(temporary_.c_str());
    }
}

void OutputFile::fail(const char* doing, int error) const {
    throw OutputError(std::string("cannot ") + doing + " " + path_ + ": " +
                      std::generic_category().message(error));
}

void OutputFile::write_through(std::string_view text) {
    flush();
    if (text.size() >= buffer_.size()) {
        write_out(text.data(), text.size());
    } else {
        text.copy(buffer_.data(), text.size());
        used_ = text.size();
    }
}

void OutputFile::flush() {
    write_out(buffer_.data(), std::exchange(used_, 0));
}

void OutputFile::write_out(const char* bytes, std::size_t count) {
    while (count > 0) {
        const ssize_t done = ::write(descriptor_, bytes, count);
        if (done < 0) {
            if (errno == EINTR) {
                continue;
            }
            fail("write", errno);
        }
        bytes += done;
        count -= static_cast<std::size_t>(done);
        written_ += static_cast<std::uint64_t>(done);
    }
}

void OutputFile::commit() {
    flush();
    // Some file systems tell only now that there was no room.
    if (close(std::exchange(descriptor_, -1)) != 0) {
        fail("write", errno);
    }
    if (temporary_.empty()) {
        return;
    }
    // A file that came there meanwhile is not overwritten either.
    const unsigned flags = overwrite_ ? 0 : RENAME_NOREPLACE;
    int result = renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), flags);
    if (result != 0 && errno == EINVAL) { // not every file system can tell
        result = std::rename(temporary_.c_str(), path_.c_str());
    }
    if (result != 0) {
        fail("write", errno);
    }
    temporary_.clear();
}

} // namespace cachealloc::tools
