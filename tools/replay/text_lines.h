#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cachealloc::tools {

/// The lines of a text file, plain or compressed by gzip, and what is wrong with them.
class TextLines {
  public:
    /// Throws TraceError if it is no regular file that can be read.
    explicit TextLines(std::string path);
    ~TextLines();
    TextLines(const TextLines&) = delete;
    TextLines& operator=(const TextLines&) = delete;

    /// The next line without its end, valid until the next call; false at the end. Throws
    /// TraceError where the file cannot be read on, or a line is longer than kLongest.
    bool next(std::string_view& line);

    /// The fields of a line, between commas, which must be `count`. Throws TraceError.
    const std::vector<std::string_view>& fields(std::string_view line, std::size_t count);

    /// A whole number in [least, most]. Throws TraceError, which calls it `what`.
    std::uint64_t number(std::string_view field, const char* what, std::uint64_t least,
                         std::uint64_t most) const;

    /// Throws TraceError: file, line, what is wrong and what is allowed.
    [[noreturn]] void fail(const std::string& what) const;

    static constexpr std::size_t kLongest = 4096;

  private:
    bool fill();

    std::string path_;
    void* file_ = nullptr; ///< a gzFile
    std::uint64_t number_ = 0;
    std::vector<char> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    bool at_end_ = false;
    std::vector<std::string_view> fields_;
};

} // namespace cachealloc::tools
