#include "core/record/unwind/table_reader.h"

namespace cachealloc {

namespace {

constexpr std::uint8_t kOmitted = 0xff;
constexpr std::uint8_t kIndirect = 0x80;
constexpr std::uint8_t kRelation = 0x70;
constexpr std::uint8_t kFormat = 0x0f;
constexpr std::uint8_t kAligned = 0x50;

std::uint64_t extended(std::int64_t value) {
    return static_cast<std::uint64_t>(value);
}

} // namespace

const std::byte* TableReader::take(std::uint64_t count) {
    if (!ok_ || count > bytes_.size - at_) {
        ok_ = false;
        return nullptr;
    }
    const std::byte* const from = bytes_.data + at_;
    at_ += count;
    return from;
}

TableReader TableReader::part(std::uint64_t count) {
    TableBytes range{bytes_.data, address(), 0};
    if (const std::byte* const from = take(count)) {
        range.data = from;
        range.size = count;
    }
    TableReader reader(range);
    reader.ok_ = ok_;
    return reader;
}

std::uint64_t TableReader::uleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        const auto byte = fixed<std::uint8_t>();
        if (shift < 64) value |= std::uint64_t{byte & 0x7fU} << shift;
        if ((byte & 0x80) == 0) return value;
    }
}

std::int64_t TableReader::sleb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        const auto byte = fixed<std::uint8_t>();
        if (shift < 64) value |= std::uint64_t{byte & 0x7fU} << shift;
        if ((byte & 0x80) != 0) continue;
        if ((byte & 0x40) != 0 && shift + 7 < 64) value |= ~std::uint64_t{0} << (shift + 7);
        return static_cast<std::int64_t>(value);
    }
}

std::uint64_t TableReader::pointer_value(std::uint8_t encoding) {
    switch (encoding & kFormat) {
    case 0x00: // absptr
    case 0x04: // udata8
    case 0x0c: // sdata8
        return fixed<std::uint64_t>();
    case 0x01:
        return uleb();
    case 0x02:
        return fixed<std::uint16_t>();
    case 0x03:
        return fixed<std::uint32_t>();
    case 0x09:
        return extended(sleb());
    case 0x0a:
        return extended(fixed<std::int16_t>());
    case 0x0b:
        return extended(fixed<std::int32_t>());
    default:
        ok_ = false;
        return 0;
    }
}

std::uintptr_t TableReader::pointer(std::uint8_t encoding, std::uintptr_t data_base) {
    if ((encoding & kIndirect) != 0) ok_ = false;
    const std::uintptr_t here = address();
    const std::uint64_t value = pointer_value(encoding);
    switch (encoding & kRelation) {
    case 0x00:
        return value;
    case 0x10: // pcrel
        return here + value;
    case 0x30: // datarel
        return data_base + value;
    default:
        ok_ = false;
        return 0;
    }
}

void TableReader::skip_pointer(std::uint8_t encoding) {
    if (encoding == kOmitted) return;
    if ((encoding & kRelation) == kAligned) {
        skip(-address() & 7);
        skip(8);
        return;
    }
    pointer_value(encoding);
}

} // namespace cachealloc
