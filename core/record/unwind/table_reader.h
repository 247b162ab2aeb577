// Reads the bytes of unwind tables as if they were hostile.
//
// Invariant: no byte outside the range is ever read; after the first attempt everything reads as 0
// and ok() stays false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cachealloc {

/// Bytes and the address that they mean: relative pointers in them count from there.
struct TableBytes {
    const std::byte* data = nullptr;
    std::uintptr_t address = 0;
    std::size_t size = 0;

    bool holds(std::uintptr_t where) const { return where - address < size; }
};

class TableReader {
  public:
    explicit TableReader(const TableBytes& bytes) : bytes_(bytes) {}
    /// From address `where` on, which may be anything.
    TableReader(const TableBytes& bytes, std::uintptr_t where)
        : bytes_(bytes), at_(where - bytes.address), ok_(where - bytes.address <= bytes.size) {}

    bool ok() const { return ok_; }
    bool at_end() const { return !ok_ || at_ == bytes_.size; }
    std::size_t left() const { return ok_ ? bytes_.size - at_ : 0; }
    std::uintptr_t address() const { return bytes_.address + at_; }

    /// A number of that type in the machine's byte order.
    template <class Number>
    Number fixed() {
        Number value{};
        if (const std::byte* const from = take(sizeof value))
            std::memcpy(&value, from, sizeof value);
        return value;
    }
    std::uint64_t uleb();
    std::int64_t sleb();
    void skip(std::uint64_t count) { take(count); }
    /// The next `count` bytes as a range of their own.
    TableReader part(std::uint64_t count);

    /// A pointer in one of the DW_EH_PE encodings; `data_base` is what "datarel" counts from.
    /// Indirect pointers and the encodings that no linker writes for x86-64 are not ok().
    std::uintptr_t pointer(std::uint8_t encoding, std::uintptr_t data_base);
    /// Goes over such a pointer, an indirect one too.
    void skip_pointer(std::uint8_t encoding);

  private:
    const std::byte* take(std::uint64_t count);
    std::uint64_t pointer_value(std::uint8_t encoding);

    TableBytes bytes_;
    std::size_t at_ = 0;
    bool ok_ = true;
};

} // namespace cachealloc
