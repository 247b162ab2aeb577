// Pickles, byte by byte. Whole files are read by Python in export_test.py.
#include "tests/tools/exports/written.h"
#include "tools/exports/pickle_writer.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace cachealloc::tools;
using cachealloc::tests::written;
using namespace std::string_literals;

namespace {

/// What the calls write, without the protocol's two bytes.
template <class Calls>
std::string pickle(const Calls& calls) {
    const std::string all = written([&calls](OutputFile& output) {
        PickleWriter writer(output);
        calls(writer);
    });
    REQUIRE(all.substr(0, 2) == "\x80\x04");
    return all.substr(2);
}

std::string integer(std::uint64_t value) {
    return pickle([value](PickleWriter& writer) { writer.integer(value); });
}

} // namespace

TEST_CASE("Integers take the shortest opcode that the page knows", "[exports]") {
    CHECK(integer(0) == "K\0"s);
    CHECK(integer(255) == "K\xff");
    CHECK(integer(256) == "M\0\1"s);
    CHECK(integer(65535) == "M\xff\xff");
    CHECK(integer(65536) == "J\0\0\1\0"s);
    CHECK(integer(0x7fffffff) == "J\xff\xff\xff\x7f");
    // One more would be negative as a BININT, and so on at each byte of a LONG1.
    CHECK(integer(0x80000000) == "\x8a\5\0\0\0\x80\0"s);
    CHECK(integer(0x7f12345678) == "\x8a\5\x78\x56\x34\x12\x7f");
    CHECK(integer(0x8012345678) == "\x8a\6\x78\x56\x34\x12\x80\0"s);
    // What the page cannot hold exactly becomes the largest that it can.
    const std::string largest = "\x8a\7\xff\xff\xff\xff\xff\xff\x1f";
    CHECK(integer(PickleWriter::kLargestExact) == largest);
    CHECK(integer(~std::uint64_t{0}) == largest);
    CHECK(pickle([](PickleWriter& writer) { writer.negative_one(); }) == "J\xff\xff\xff\xff");
}

TEST_CASE("Other values", "[exports]") {
    CHECK(pickle([](PickleWriter& writer) { writer.real(0.5); }) == "G\x3f\xe0\0\0\0\0\0\0"s);
    CHECK(pickle([](PickleWriter& writer) { writer.boolean(true); }) == "\x88");
    CHECK(pickle([](PickleWriter& writer) { writer.boolean(false); }) == "\x89");
    CHECK(pickle([](PickleWriter& writer) { writer.pair(1, 2); }) == "K\1K\2\x86");
    CHECK(pickle([](PickleWriter& writer) { writer.finish(); }) == ".");
}

TEST_CASE("A text is written once and named by its place then", "[exports]") {
    CHECK(pickle([](PickleWriter& writer) {
              writer.text("ab");
              writer.text("");
              writer.text("ab");
          }) == "\x8c\2ab\x94\x8c\0\x94h\0"s);
    // Invalid UTF-8 would stop Python's reader.
    CHECK(pickle([](PickleWriter& writer) { writer.text("\xff"); }) == "\x8c\1?\x94");
    const std::string large(256, 'x');
    CHECK(pickle([&large](PickleWriter& writer) { writer.text(large); }) ==
          "X\0\1\0\0"s + large + "\x94");
    // Places from 256 on need four bytes.
    const std::string many = pickle([](PickleWriter& writer) {
        for (int number = 0; number < 257; ++number) {
            writer.text(std::to_string(number));
        }
        writer.text("255");
        writer.text("256");
    });
    CHECK(many.substr(many.size() - 7) == "h\xffj\0\1\0\0"s);
}

TEST_CASE("Values can be named by their place", "[exports]") {
    CHECK(pickle([](PickleWriter& writer) {
              PickleMemo memo;
              CHECK_FALSE(writer.recall(memo));
              writer.text("first"); // has place 0
              writer.integer(1);
              writer.memorise(memo);
              CHECK(writer.recall(memo));
          }) == "\x8c\5first\x94K\1\x94h\1");
}

TEST_CASE("Lists and dictionaries are filled in batches of 1000", "[exports]") {
    const auto list = [](int items) {
        return pickle([items](PickleWriter& writer) {
            writer.open_list();
            for (int item = 0; item < items; ++item) {
                writer.item();
                writer.integer(7);
            }
            writer.close_list();
        });
    };
    const auto items = [](int count) {
        std::string text;
        for (int item = 0; item < count; ++item) {
            text += "K\7";
        }
        return text;
    };
    CHECK(list(0) == "]");
    CHECK(list(1) == "](K\7e");
    CHECK(list(1000) == "](" + items(1000) + "e");
    CHECK(list(1001) == "](" + items(1000) + "e(K\7e");

    CHECK(pickle([](PickleWriter& writer) {
              writer.open_dict();
              writer.close_dict();
          }) == "}");
    const std::string nested = pickle([](PickleWriter& writer) {
        writer.open_dict();
        writer.key("a");
        writer.open_list();
        writer.item();
        writer.integer(1);
        writer.close_list();
        writer.key("b");
        writer.integer(2);
        writer.close_dict();
    });
    CHECK(nested == "}(\x8c\1a\x94](K\1e\x8c\1b\x94K\2u");
}
