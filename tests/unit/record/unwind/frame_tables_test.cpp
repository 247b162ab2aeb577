#include "core/record/unwind/frame_tables.h"

#include "tests/unit/record/unwind/fake_object.h"
#include "tests/unit/record/unwind/process_platform.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <random>

using namespace cachealloc;
using namespace cachealloc::test;
using Shape = FrameRule::Shape;

namespace {

struct Case {
    const char* what;
    Bytes instructions;
    FrameRule wanted;
};

// push rbp; mov rbp, rsp as compilers describe it.
const Bytes kFramePointer = {0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6};

Bytes joined(std::initializer_list<Bytes> parts) {
    Bytes all;
    for (const Bytes& part : parts)
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

const Case kCases[] = {
    {"nothing", {}, {Shape::rsp, 8, 0}},
    {"def_cfa_offset", {0x41, 0x0e, 0x90, 0x01}, {Shape::rsp, 144, 0}},
    {"what comes later does not count", {0x7f, 0x0e, 32}, {Shape::rsp, 8, 0}},
    {"advance_loc1, 2, 4",
     {2, 1, 0x0e, 16, 3, 1, 0, 0x0e, 24, 4, 1, 0, 0, 0, 0x0e, 32},
     {Shape::rsp, 32, 0}},
    {"frame pointer", kFramePointer, {Shape::rbp_saved, 16, -16}},
    {"saved rbp", {0x0e, 48, 0x86, 3}, {Shape::rsp_saved, 48, -24}},
    {"saved rbp, extended", {0x0e, 48, 5, 6, 2}, {Shape::rsp_saved, 48, -16}},
    {"saved rbp, extended_sf", {0x0e, 48, 0x11, 6, 2}, {Shape::rsp_saved, 48, -16}},
    {"saved rbp, negative_offset_extended", {0x0e, 48, 0x2f, 6, 0x7e}, FrameRule::complex()},
    {"saved rbp outside of its frame", {0x0e, 16, 0x86, 3}, FrameRule::complex()},
    {"saved rbp at an odd place", joined({kFramePointer, {0x86, 3}}), FrameRule::complex()},
    {"restore", {0x0e, 48, 0x86, 3, 0x41, 0xc6}, {Shape::rsp, 48, 0}},
    {"restore_extended", {0x0e, 48, 0x86, 3, 0x41, 6, 6}, {Shape::rsp, 48, 0}},
    {"same_value", {0x0e, 48, 0x86, 3, 8, 6}, {Shape::rsp, 48, 0}},
    {"remember and restore_state",
     joined({kFramePointer, {0x0a, 0x41, 0x0c, 7, 8, 0xc6, 0x41, 0x0b}}),
     {Shape::rbp_saved, 16, -16}},
    {"restore_state without remember", {0x0b}, FrameRule::complex()},
    {"GNU_args_size", {0x2e, 32, 0x0e, 40}, {Shape::rsp, 40, 0}},
    {"def_cfa", {0x0c, 6, 16, 0x86, 2}, {Shape::rbp_saved, 16, -16}},
    {"def_cfa_sf", {0x12, 7, 0x7e}, {Shape::rsp, 16, 0}},
    {"def_cfa_offset_sf", {0x13, 0x7d}, {Shape::rsp, 24, 0}},
    {"other registers", {0x0e, 64, 0x83, 6, 0x8c, 5, 0x8f, 2}, {Shape::rsp, 64, 0}},
    {"the stack pointer realigned",
     {0x0c, 10, 0, 0x10, 6, 2, 0x76, 0, 0x0f, 3, 0x76, 0x78, 6},
     {Shape::rbp_deref, -8, 0}},
    {"CFA from another register", {0x0c, 10, 0}, FrameRule::complex()},
    {"CFA by another expression", {0x0f, 2, 0x77, 8}, FrameRule::complex()},
    {"CFA by a longer expression",
     {0x10, 6, 2, 0x76, 0, 0x0f, 4, 0x76, 0x78, 6, 0x96},
     FrameRule::complex()},
    {"rbp by expression without such a CFA", {0x10, 6, 2, 0x76, 0}, FrameRule::complex()},
    {"rbp in a register", {9, 6, 3}, FrameRule::complex()},
    {"rbp undefined", {7, 6}, FrameRule::complex()},
    {"rbp is an offset", {0x14, 6, 2}, FrameRule::complex()},
    {"rbp is an offset, sf", {0x15, 6, 2}, FrameRule::complex()},
    {"rbp is an expression", {0x16, 6, 1, 0x30}, FrameRule::complex()},
    {"rsp is an offset", {0x14, 7, 2}, FrameRule::complex()},
    {"the return address undefined", {7, 16}, FrameRule::end()},
    {"the return address in a register", {9, 16, 5}, FrameRule::complex()},
    {"the return address elsewhere", {0x90, 2}, FrameRule::complex()},
    {"no room for a return address", {0x0e, 0}, FrameRule::complex()},
    {"an unknown instruction", {0x3f}, FrameRule::complex()},
    {"set_loc before the start", {1, 0, 0, 0, 0x80}, FrameRule::complex()},
    {"set_loc beyond the place", {1, 0, 0, 0, 0, 0x0e, 32}, {Shape::rsp, 8, 0}},
    {"a frame of 16 MiB", {0x0e, 0x80, 0x80, 0x80, 0x08}, FrameRule::complex()},
};

} // namespace

TEST_CASE("Every instruction of a frame's table is understood or refused", "[unwind]") {
    for (const Case& each : kCases) {
        INFO(each.what);
        const FakeObject fake({{0x100, 0x200, each.instructions}});
        CHECK(FrameTables(fake.object()).rule(fake.code(0x120)).word() == each.wanted.word());
    }
}

TEST_CASE("A return address belongs to the function that the call is in", "[unwind]") {
    const FakeObject fake({{0x100, 0x100, {0x0e, 16}},
                           {0x200, 0x100, {0x0e, 24}},
                           {0x400, 0x100, {0x0e, 32, 0x50, 0x0e, 40}}});
    const FrameTables tables(fake.object());
    CHECK(tables.rule(fake.code(0x100)) == FrameRule::complex());
    CHECK(tables.rule(fake.code(0x101)) == FrameRule(Shape::rsp, 16, 0));
    CHECK(tables.rule(fake.code(0x200)) == FrameRule(Shape::rsp, 16, 0));
    CHECK(tables.rule(fake.code(0x201)) == FrameRule(Shape::rsp, 24, 0));
    CHECK(tables.rule(fake.code(0x300)) == FrameRule(Shape::rsp, 24, 0));
    CHECK(tables.rule(fake.code(0x301)) == FrameRule::complex()); // between functions
    CHECK(tables.rule(fake.code(0x410)) == FrameRule(Shape::rsp, 32, 0));
    CHECK(tables.rule(fake.code(0x411)) == FrameRule(Shape::rsp, 40, 0));
    CHECK(tables.rule(fake.code(0x501)) == FrameRule::complex());
    CHECK(tables.rule(0) == FrameRule::complex());
    CHECK(tables.rule(~std::uintptr_t{0}) == FrameRule::complex());
}

TEST_CASE("What functions share is understood or refused", "[unwind]") {
    const auto rule = [](const FakeCommon& common) {
        const FakeObject fake({{0x100, 0x100, {0x0e, 24}}}, common);
        return FrameTables(fake.object()).rule(fake.code(0x110));
    };
    const FrameRule plain(Shape::rsp, 24, 0);
    FakeCommon common;
    CHECK(rule(common) == plain);
    common.version = 3;
    CHECK(rule(common) == plain);
    common.version = 4;
    CHECK(rule(common) == FrameRule::complex());
    common = {};
    common.augmentation = "zPLR";
    common.augmentation_data = {0x9b, 1, 2, 3, 4, 0x1b, 0x1b};
    CHECK(rule(common) == plain);
    common.augmentation = "zRS"; // a signal frame
    common.augmentation_data = {0x1b};
    CHECK(rule(common) == FrameRule::complex());
    common.augmentation = "zRx";
    CHECK(rule(common) == FrameRule::complex());
    common.augmentation = "eh";
    CHECK(rule(common) == FrameRule::complex());
    common = {};
    common.augmentation_data = {0x9b}; // functions found indirectly
    CHECK(rule(common) == FrameRule::complex());
    common = {};
    common.return_column = 15;
    CHECK(rule(common) == FrameRule::complex());
    common = {};
    common.instructions = {0x0c, 7, 8}; // the return address nowhere
    CHECK(rule(common) == FrameRule::complex());
}

TEST_CASE("An object without tables or headers has no rules", "[unwind]") {
    FakeObject fake({{0x100, 0x100, {}}});
    CodeObject object = fake.object();
    object.frame_header = nullptr;
    CHECK(FrameTables(object).rule(fake.code(0x110)) == FrameRule::complex());
    object = fake.object();
    object.frame_header = fake.bytes() + FakeObject::kCode; // not readable
    CHECK(FrameTables(object).rule(fake.code(0x110)) == FrameRule::complex());
    fake.bytes()[0] = std::byte{0};
    CHECK(FrameTables(fake.object()).rule(fake.code(0x110)) == FrameRule::complex());
}

// In a copy of exactly its size, so that AddressSanitizer sees a byte too many.
TEST_CASE("Mutilated tables are survived", "[unwind]") {
    const std::uint32_t seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    std::vector<FakeFunction> functions;
    for (const Case& each : kCases)
        functions.push_back(
            {0x40 * static_cast<std::uint32_t>(functions.size()), 0x40, each.instructions});
    const FakeObject fake(functions);
    const std::size_t whole = fake.table_bytes();
    for (int round = 0; round < 20000; ++round) {
        const std::size_t size = round % 4 == 0 ? random() % whole : whole;
        const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
        std::memcpy(copy.get(), fake.tables().data, size);
        for (unsigned changes = random() % 8; changes != 0 && size != 0; --changes)
            copy[random() % size] = static_cast<std::byte>(random());
        const TableBytes segment{copy.get(), fake.header(), size};
        const FrameTables tables({&segment, 1}, fake.header());
        for (int i = 0; i < 4; ++i)
            tables.rule(fake.code(static_cast<std::uint32_t>(random() % 0xa00)));
    }
}

TEST_CASE("The tables of this program are read whole", "[unwind]") {
    CodeObject object;
    REQUIRE(find_object(reinterpret_cast<std::uintptr_t>(&joined), object));
    const FrameTables tables(object);
    std::size_t known = 0;
    for (std::uintptr_t pc = object.start; pc < object.end; pc += 37)
        known += tables.rule(pc).shape() != Shape::complex;
    CHECK(known > 1000);
}
