// A file that appears whole or not at all.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace cachealloc::tools {

/// The output cannot be written. The message is one line: which file, why, what to do.
class OutputError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Writes to a temporary file beside the one asked for, which takes its name in commit(). "-" is
/// standard output; devices and pipes are written to as they are.
class OutputFile {
  public:
    /// Throws OutputError, also if the file exists and `overwrite` is false.
    OutputFile(const std::string& path, bool overwrite);
    /// Without commit(), what was written is removed.
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    /// Throws OutputError, as all that writes. Content is buffered.
    void write(std::string_view text) {
        if (text.size() > buffer_.size() - used_) {
            write_through(text);
            return;
        }
        text.copy(buffer_.data() + used_, text.size());
        used_ += text.size();
    }
    void write(char byte) { write(std::string_view(&byte, 1)); }
    template <class Number>
    void write_number(Number number, int base = 10) {
        char digits[72];
        const auto end = std::to_chars(digits, digits + sizeof digits, number, base).ptr;
        write(std::string_view(digits, static_cast<std::size_t>(end - digits)));
    }

    /// Everything was written: the file gets its name.
    void commit();
    /// Bytes written so far.
    [[nodiscard]] std::uint64_t size() const { return written_ + used_; }

  private:
    void open(bool overwrite);
    void write_through(std::string_view text);
    void flush();
    void write_out(const char* bytes, std::size_t count);
    [[noreturn]] void fail(const char* doing, int error) const;

    std::string path_;
    std::string temporary_; ///< empty where the output is written in place
    int descriptor_ = -1;
    bool overwrite_ = false;
    std::vector<char> buffer_;
    std::size_t used_ = 0;
    std::uint64_t written_ = 0;
};

} // namespace cachealloc::tools
