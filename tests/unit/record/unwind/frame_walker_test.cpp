// Walks over stacks made by hand, good and bad ones, with the rules of an object made by hand.
#include "core/record/unwind/frame_walker.h"

#include "tests/unit/record/unwind/fake_object.h"

#include <catch2/catch.hpp>

#include <array>
#include <cstring>

using namespace cachealloc;
using namespace cachealloc::test;

namespace {

const FakeObject* g_object = nullptr;
int g_asked = 0;

bool find_fake(std::uintptr_t address, CodeObject& object) {
    ++g_asked;
    const CodeObject fake = g_object->object();
    if (address < fake.start || address >= fake.end) return false;
    object = fake;
    return true;
}

// Functions: at 0x100 a frame of 32 bytes, at 0x200 one with rbp, at 0x300 the last one.
struct Scene {
    Scene()
        : fake({{0x100, 0x100, {0x0e, 32}},
                {0x200, 0x100, {0x0c, 6, 16, 0x86, 2}},
                {0x300, 0x100, {7, 16}},
                {0x400, 0x100, {0x10, 6, 2, 0x76, 0, 0x0f, 3, 0x76, 0x78, 6}}}) {
        g_object = &fake;
        g_asked = 0;
        platform.find_object = find_fake;
        words[3] = fake.code(0x210); // of the frame of 32 bytes
        words[5] = at(10);           // the saved rbp
        words[6] = fake.code(0x110);
        words[10] = fake.code(0x310);
    }
    std::uintptr_t at(std::size_t word) const {
        return reinterpret_cast<std::uintptr_t>(&words[word]);
    }
    std::size_t walk(std::uintptr_t pc, std::uintptr_t rbp) {
        cut = false;
        return walker.walk({pc, at(0), rbp}, {at(0), at(16)}, generation, frames.data(), room, cut);
    }
    std::size_t walk() { return walk(fake.code(0x110), at(5)); }

    FakeObject fake;
    UnwindPlatform platform;
    FrameWalker walker{platform};
    std::array<std::uintptr_t, 18> words{}; // two more than the stack has
    std::array<trace::Frame, 16> frames{};
    std::size_t room = 16;
    std::uint16_t generation = 1;
    bool cut = false;
};

constexpr std::size_t kGaveUp = FrameWalker::kGaveUp;

} // namespace

TEST_CASE("A stack made by hand is walked to its end", "[unwind]") {
    Scene scene;
    for (int i = 0; i < 3; ++i) {
        REQUIRE(scene.walk() == 4);
        CHECK(scene.frames[0] == scene.fake.code(0x110));
        CHECK(scene.frames[1] == scene.fake.code(0x210));
        CHECK(scene.frames[2] == scene.fake.code(0x110));
        CHECK(scene.frames[3] == scene.fake.code(0x310));
        CHECK_FALSE(scene.cut);
    }
    CHECK(g_asked == 3); // each address once
    scene.words[10] = 0;
    CHECK(scene.walk() == 3);
    scene.room = 2;
    CHECK(scene.walk() == 2);
    CHECK(scene.cut);
}

TEST_CASE("A realigned frame is walked through rbp", "[unwind]") {
    Scene scene;
    scene.words[4] = scene.at(8); // below where rbp points: the CFA
    scene.words[5] = 0x1234;
    scene.words[7] = scene.fake.code(0x310);
    CHECK(scene.walk(scene.fake.code(0x410), scene.at(5)) == 2);
    scene.words[16] = scene.fake.code(0x310);
    scene.words[4] = scene.at(17); // beyond the stack's end
    CHECK(scene.walk(scene.fake.code(0x410), scene.at(5)) == kGaveUp);
    scene.words[4] = scene.at(0); // not above this frame
    CHECK(scene.walk(scene.fake.code(0x410), scene.at(5)) == kGaveUp);
    CHECK(scene.walk(scene.fake.code(0x410), scene.at(0)) == kGaveUp);
    CHECK(scene.walk(scene.fake.code(0x410), 0) == kGaveUp);
    CHECK(scene.walk(scene.fake.code(0x410), ~std::uintptr_t{0}) == kGaveUp);
}

TEST_CASE("What leads off the stack is not followed", "[unwind]") {
    Scene scene;
    // Up to the last word, and beyond it.
    CHECK(scene.walk(scene.fake.code(0x210), scene.at(14)) == 2 - (scene.words[15] == 0));
    CHECK(scene.walk(scene.fake.code(0x210), scene.at(15)) == kGaveUp);
    CHECK(scene.walk(scene.fake.code(0x210), scene.at(0) - 8) == kGaveUp);
    CHECK(scene.walk(scene.fake.code(0x210), 0) == kGaveUp);
    CHECK(scene.walk(scene.fake.code(0x210), ~std::uintptr_t{15}) == kGaveUp);
    // A chain that goes round.
    scene.words[5] = scene.at(5);
    scene.words[6] = scene.fake.code(0x210);
    CHECK(scene.walk() == kGaveUp);
}

TEST_CASE("An address outside any object, or without a rule, is not guessed", "[unwind]") {
    Scene scene;
    scene.words[6] = 0x1000;
    CHECK(scene.walk() == kGaveUp);
    scene.words[6] = scene.fake.code(0x610);
    CHECK(scene.walk() == kGaveUp);
    CHECK(scene.walk() == kGaveUp);
}

TEST_CASE("Leading frames of the recorder are left out", "[unwind]") {
    Scene scene;
    scene.platform.own_start = scene.fake.code(0x100);
    scene.platform.own_end = scene.fake.code(0x200);
    CHECK(scene.walk() == 3);
    CHECK(scene.frames[0] == scene.fake.code(0x210));
    CHECK(scene.frames[1] == scene.fake.code(0x110));
    scene.platform.own_end = scene.fake.code(0x400);
    CHECK(scene.walk() == 0);
}

TEST_CASE("In a new generation every rule is learnt anew", "[unwind]") {
    Scene scene;
    REQUIRE(scene.walk() == 4);
    // Other code at the same place: the frame is 48 bytes, its call returns to the same address.
    const FakeObject other({{0x100, 0x100, {0x0e, 48}}, {0x300, 0x100, {7, 16}}});
    std::memcpy(scene.fake.bytes(), const_cast<FakeObject&>(other).bytes(), FakeObject::kBytes);
    scene.words[5] = scene.fake.code(0x310);
    scene.words[3] = scene.fake.code(0x310);
    CHECK(scene.walk() == 2); // by what is remembered
    scene.words[3] = 0x1000;
    scene.generation = 2;
    CHECK(scene.walk() == 2);
    CHECK(scene.frames[1] == scene.fake.code(0x310));
}
