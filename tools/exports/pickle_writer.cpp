#include "tools/exports/pickle_writer.h"

#include "tools/exports/text.h"

#include <algorithm>
#include <bit>

namespace cachealloc::tools {
namespace {

constexpr std::uint32_t kBatch = 1000;

constexpr char kMark = '(';
constexpr char kEmptyList = ']';
constexpr char kEmptyDict = '}';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';
constexpr char kBinInt = 'J';
constexpr char kBinInt1 = 'K';
constexpr char kBinInt2 = 'M';
constexpr char kLong1 = '\x8a';
constexpr char kBinFloat = 'G';
constexpr char kTuple2 = '\x86';
constexpr char kShortBinUnicode = '\x8c';
constexpr char kBinUnicode = 'X';
constexpr char kMemoize = '\x94';
constexpr char kBinGet = 'h';
constexpr char kLongBinGet = 'j';
constexpr char kStop = '.';

/// Bytes that a LONG1 needs for a number that is not negative: its top bit must stay clear.
int long_bytes(std::uint64_t value) {
    return static_cast<int>(std::bit_width(value)) / 8 + 1;
}

} // namespace

PickleWriter::PickleWriter(OutputFile& output) : output_(output) {
    output_.write(std::string_view("\x80\x04", 2)); // PROTO 4
}

void PickleWriter::open_list() {
    output_.write(kEmptyList);
    levels_.emplace_back();
}

void PickleWriter::open_dict() {
    output_.write(kEmptyDict);
    levels_.emplace_back();
}

void PickleWriter::next(char filled) {
    Level& level = levels_.back();
    if (level.items == kBatch) {
        output_.write(filled);
        level.items = 0;
    }
    if (level.items++ == 0) {
        output_.write(kMark);
    }
}

void PickleWriter::close(char filled) {
    if (levels_.back().items != 0) {
        output_.write(filled);
    }
    levels_.pop_back();
}

void PickleWriter::close_list() {
    close(kAppends);
}

void PickleWriter::close_dict() {
    close(kSetItems);
}

void PickleWriter::key(std::string_view name) {
    next(kSetItems);
    text(name);
}

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
    for (int at = 0; at < bytes; ++at) {
        output_.write(static_cast<char>(value >> (8 * at)));
    }
}

void PickleWriter::integer(std::uint64_t value) {
    value = std::min(value, kLargestExact);
    if (value < 0x100) {
        output_.write(kBinInt1);
        little_endian(value, 1);
    } else if (value < 0x10000) {
        output_.write(kBinInt2);
        little_endian(value, 2);
    } else if (value < 0x80000000) {
        output_.write(kBinInt);
        little_endian(value, 4);
    } else {
        const int bytes = long_bytes(value);
        output_.write(kLong1);
        little_endian(static_cast<std::uint64_t>(bytes), 1);
        little_endian(value, bytes);
    }
}

void PickleWriter::negative_one() {
    output_.write(kBinInt);
    little_endian(0xffffffff, 4);
}

void PickleWriter::real(double value) {
    output_.write(kBinFloat);
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int at = 7; at >= 0; --at) { // the one number that is big endian
        output_.write(static_cast<char>(bits >> (8 * at)));
    }
}

void PickleWriter::boolean(bool value) {
    output_.write(value ? kNewTrue : kNewFalse);
}

void PickleWriter::pair(std::uint64_t first, std::uint64_t second) {
    integer(first);
    integer(second);
    output_.write(kTuple2);
}

void PickleWriter::text(std::string_view value) {
    key_.assign(value);
    const auto known = texts_.find(key_);
    if (known != texts_.end()) {
        get(known->second);
        return;
    }
    const std::string valid = valid_utf8(value);
    const bool is_short = valid.size() < 0x100;
    output_.write(is_short ? kShortBinUnicode : kBinUnicode);
    little_endian(valid.size(), is_short ? 1 : 4);
    output_.write(valid);
    PickleMemo memo;
    memorise(memo);
    texts_.emplace(key_, memo.index);
}

bool PickleWriter::recall(const PickleMemo& memo) {
    if (memo.index == PickleMemo::kNone) {
        return false;
    }
    get(memo.index);
    return true;
}

void PickleWriter::memorise(PickleMemo& memo) {
    output_.write(kMemoize);
    memo.index = memo_size_++;
}

void PickleWriter::get(std::uint32_t index) {
    const bool is_short = index < 0x100;
    output_.write(is_short ? kBinGet : kLongBinGet);
    little_endian(index, is_short ? 1 : 4);
}

void PickleWriter::finish() {
    output_.write(kStop);
}

} // namespace cachealloc::tools
