#include "core/record/unwind/table_reader.h"

#include <catch2/catch.hpp>

#include <vector>

using namespace cachealloc;

namespace {
struct Reader {
    explicit Reader(std::vector<unsigned char> values) : bytes(std::move(values)) {}
    TableReader at(std::uintptr_t address) const {
        return TableReader(
            {reinterpret_cast<const std::byte*>(bytes.data()), address, bytes.size()});
    }
    std::vector<unsigned char> bytes;
};
} // namespace

TEST_CASE("Numbers of variable length are read", "[unwind]") {
    const Reader bytes({0x02, 0x7f, 0x80, 0x01, 0xff, 0x00, 0xff, 0x7e, 0x40});
    TableReader reader = bytes.at(0);
    CHECK(reader.uleb() == 2);
    CHECK(reader.sleb() == -1);
    CHECK(reader.uleb() == 128);
    CHECK(reader.sleb() == 127);
    CHECK(reader.sleb() == -129);
    CHECK(reader.sleb() == -64);
    CHECK(reader.ok());
    CHECK(reader.at_end());
    CHECK(reader.uleb() == 0);
    CHECK_FALSE(reader.ok());
}

TEST_CASE("A number longer than any has its lower bits", "[unwind]") {
    const Reader bytes({0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00});
    TableReader reader = bytes.at(0);
    CHECK(reader.uleb() == 1);
    CHECK(reader.at_end());
    TableReader again = bytes.at(0);
    CHECK(again.sleb() == 1);
}

TEST_CASE("Pointers in the encodings that linkers write", "[unwind]") {
    const Reader four({0xfc, 0xff, 0xff, 0xff, 0, 0, 0, 0});
    CHECK(four.at(0x1000).pointer(0x1b, 0) == 0x0ffc);                // pcrel sdata4
    CHECK(four.at(0x1000).pointer(0x3b, 0x5000) == 0x4ffc);           // datarel sdata4
    CHECK(four.at(0x1000).pointer(0x03, 0) == 0xfffffffc);            // udata4
    CHECK(four.at(0x1000).pointer(0x0a, 0) == ~std::uint64_t{0} - 3); // sdata2
    CHECK(four.at(0x1000).pointer(0x02, 0) == 0xfffc);                // udata2
    CHECK(four.at(0x1000).pointer(0x00, 0) == 0xfffffffc);            // absptr
    CHECK(four.at(0x1000).pointer(0x1c, 0) == 0x1000 + 0xfffffffcUL);
    for (const int refused : {0x9b, 0x2b, 0x4b, 0x50, 0x0f, 0xff}) {
        TableReader reader = four.at(0x1000);
        reader.pointer(static_cast<std::uint8_t>(refused), 0);
        CHECK_FALSE(reader.ok());
    }
    TableReader aligned = four.at(0x1001); // 7 bytes on
    aligned.skip_pointer(0x50);
    CHECK_FALSE(aligned.ok());
    TableReader omitted = four.at(0x1000);
    omitted.skip_pointer(0xff);
    CHECK(omitted.left() == 8);
}

TEST_CASE("No byte outside is read, whatever is asked for", "[unwind]") {
    const Reader bytes({1, 2, 3, 4});
    TableReader reader = bytes.at(0x1000);
    reader.skip(~std::uint64_t{0});
    CHECK_FALSE(reader.ok());
    CHECK(reader.left() == 0);
    CHECK(reader.fixed<std::uint8_t>() == 0);
    TableReader part = bytes.at(0x1000).part(5);
    CHECK_FALSE(part.ok());
    TableReader inner = bytes.at(0x1000).part(2);
    CHECK(inner.fixed<std::uint16_t>() == 0x0201);
    CHECK(inner.fixed<std::uint8_t>() == 0);
    CHECK_FALSE(inner.ok());
    const TableBytes range{nullptr, 0x1000, 4};
    CHECK_FALSE(TableReader(range, 0x0fff).ok());
    CHECK_FALSE(TableReader(range, 0x1005).ok());
    CHECK(TableReader(range, 0x1004).at_end());
}
