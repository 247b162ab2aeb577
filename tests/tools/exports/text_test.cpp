// Texts that any reader takes.
#include "tools/exports/text.h"

#include <catch2/catch.hpp>

using cachealloc::tools::json_string;
using cachealloc::tools::valid_utf8;

TEST_CASE("Invalid bytes become question marks, valid ones stay", "[exports]") {
    for (const char* valid : {"", "abc", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                              "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
        CHECK(valid_utf8(valid) == valid);
    }
    CHECK(valid_utf8("a\x80z") == "a?z");            // goes on without a start
    CHECK(valid_utf8("\xc1\xbf") == "??");           // longer than need be
    CHECK(valid_utf8("\xe0\x9f\xbf") == "???");      // likewise
    CHECK(valid_utf8("\xf0\x8f\xbf\xbf") == "????"); // likewise
    CHECK(valid_utf8("\xed\xa0\x80") == "???");      // half of a pair
    CHECK(valid_utf8("\xf4\x90\x80\x80") == "????"); // beyond Unicode
    CHECK(valid_utf8("\xf5") == "?");
    CHECK(valid_utf8("\xe2\x82") == "??"); // cut
    CHECK(valid_utf8("\xe2\x82z") == "??z");
}

TEST_CASE("JSON strings", "[exports]") {
    CHECK(json_string("a\"b\\c\n\x01") == "\"a\\\"b\\\\c\\u000a\\u0001\"");
    CHECK(json_string("\xff") == "\"?\"");
}
