#pragma once

#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

namespace cachealloc::tests {

/// A file that is gone with this object.
class TemporaryFile {
  public:
    explicit TemporaryFile(const std::vector<std::byte>& content = {}) {
        const char* const directory = std::getenv("TMPDIR");
        path_ = std::string(directory == nullptr ? "/tmp" : directory) + "/cachealloc-XXXXXX";
        const int descriptor = ::mkstemp(path_.data());
        if (descriptor < 0) throw std::runtime_error("no temporary file");
        std::size_t done = 0;
        while (done < content.size()) {
            const ssize_t wrote = ::write(descriptor, &content[done], content.size() - done);
            if (wrote <= 0) throw std::runtime_error("no room for a temporary file");
            done += static_cast<std::size_t>(wrote);
        }
        ::close(descriptor);
    }
    ~TemporaryFile() { ::unlink(path_.c_str()); }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
};

} // namespace cachealloc::tests
