#include "tools/replay/text_lines.h"

#include "tools/trace/tables.h"
#include "tools/trace/trace_error.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

namespace cachealloc::tools {

namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;

gzFile as_file(void* file) {
    return static_cast<gzFile>(file);
}

} // namespace

TextLines::TextLines(std::string path) : path_(std::move(path)), buffer_(kBuffer) {
    // Without waiting: a named pipe would block the tool for ever.
    const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) throw TraceError(fmt::format("{}: {}", path_, std::strerror(errno)));
    struct stat about {};
    if (::fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode))
        file_ = ::gzdopen(descriptor, "rb");
    if (file_ == nullptr) {
        ::close(descriptor);
        throw TraceError(fmt::format("{}: not a regular file that can be read", path_));
    }
}

TextLines::~TextLines() {
    ::gzclose_r(as_file(file_));
}

/// Reads on behind what is left. False at the end of the file.
bool TextLines::fill() {
    std::copy(buffer_.data() + begin_, buffer_.data() + end_, buffer_.data());
    end_ -= begin_;
    begin_ = 0;
    const int got =
        ::gzread(as_file(file_), buffer_.data() + end_, static_cast<unsigned>(kBuffer - end_));
    int code = Z_OK;
    const char* const message = ::gzerror(as_file(file_), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        throw TraceError(fmt::format("{}: cannot be read beyond line {}: {}", path_, number_,
                                     code == Z_BUF_ERROR ? "the compressed file is cut" : message));
    }
    end_ += static_cast<std::size_t>(got);
    return got != 0;
}

bool TextLines::next(std::string_view& line) {
    for (;;) {
        const char* const from = buffer_.data() + begin_;
        const char* const to = buffer_.data() + end_;
        const char* const stop = std::find(from, to, '\n');
        if (stop == to && !at_end_) {
            if (end_ - begin_ > kLongest) {
                ++number_;
                break;
            }
            at_end_ = !fill();
            continue;
        }
        if (from == to) return false;
        ++number_;
        line = {from, static_cast<std::size_t>(stop - from)};
        begin_ += line.size() + (stop == to ? 0 : 1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.size() > kLongest) break;
        return true;
    }
    fail(fmt::format("longer than the {} bytes that a line may have", kLongest));
}

const std::vector<std::string_view>& TextLines::fields(std::string_view line, std::size_t count) {
    fields_.clear();
    for (;;) {
        const std::size_t comma = line.find(',');
        fields_.push_back(line.substr(0, comma));
        if (comma == std::string_view::npos) break;
        line.remove_prefix(comma + 1);
    }
    if (fields_.size() != count)
        fail(fmt::format("{} fields; {} are allowed", fields_.size(), count));
    return fields_;
}

std::uint64_t TextLines::number(std::string_view field, const char* what, std::uint64_t least,
                                std::uint64_t most) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc{} || end != field.data() + field.size() || value < least || value > most)
        fail(fmt::format("{} is '{}'; a whole number from {} to {} is allowed", what,
                         printable(field.substr(0, 40)), least, most));
    return value;
}

void TextLines::fail(const std::string& what) const {
    throw TraceError(fmt::format("{}:{}: {}", path_, number_, what));
}

} // namespace cachealloc::tools
