// A loaded object made by hand: a page with ELF and program headers, two pages of "code" that is
// only addresses, and unwind tables with the instructions that a test gives.
#pragma once

#include "core/record/unwind/table_reader.h"
#include "core/record/unwind/unwind_platform.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cachealloc::test {

using Bytes = std::vector<std::uint8_t>;

/// One function: where it lies in the code and how its frame changes.
struct FakeFunction {
    std::uint32_t start;
    std::uint32_t size;
    Bytes instructions;
};

/// What the functions share: CFA = rsp + 8, the return address at CFA - 8.
struct FakeCommon {
    std::string augmentation = "zR";
    Bytes augmentation_data = {0x1b};
    Bytes instructions = {0x0c, 7, 8, 0x90, 1};
    std::uint8_t version = 1;
    std::uint8_t code_align = 1;
    std::uint8_t data_align = 0x78; ///< -8
    std::uint8_t return_column = 16;
};

class FakeObject {
  public:
    static constexpr std::size_t kPage = 4096;
    static constexpr std::size_t kCode = kPage; ///< where the code starts
    static constexpr std::size_t kTables = 3 * kPage;
    static constexpr std::size_t kBytes = 5 * kPage;

    /// Functions in the order of their starts, which count from the start of the code.
    explicit FakeObject(const std::vector<FakeFunction>& functions, const FakeCommon& common = {});
    ~FakeObject();
    FakeObject(const FakeObject&) = delete;
    FakeObject& operator=(const FakeObject&) = delete;

    CodeObject object() const;
    std::uintptr_t code(std::uint32_t offset) const;
    /// The tables alone, and how many bytes of them are used.
    TableBytes tables() const;
    std::uintptr_t header() const;
    std::size_t table_bytes() const { return used_; }
    std::byte* bytes() { return memory_; }

  private:
    void put(const void* from, std::size_t count);
    template <class Number>
    void number(Number value) {
        put(&value, sizeof value);
    }
    void put(const Bytes& from) { put(from.data(), from.size()); }
    void pad(std::size_t start);
    void write_headers();

    std::byte* memory_;
    std::size_t used_ = 0;
};

} // namespace cachealloc::test
