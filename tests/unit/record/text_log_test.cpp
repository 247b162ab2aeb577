#include "core/record/text_log.h"

#include "tests/unit/record/recording.h"
#include "tests/unit/record/small_file.h"

#include <catch2/catch.hpp>

#include <string>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::SectionType;

TEST_CASE("text log: whole pairs, or nothing", "[record]") {
    SmallFile small({{SectionType::settings, 1, 4096, 0, 0}});
    TextLog log(small.space(0));
    CHECK(log.append("exe", "/bin/true"));
    CHECK(log.append("empty", ""));
    CHECK(log.append(std::string_view("na\0me", 5), std::string_view("va\0lue", 6)));
    const std::string expected("exe\0/bin/true\0empty\0\0na\0va\0", 27);
    const auto text = [&] {
        const auto* const data = reinterpret_cast<const char*>(small.space(0).data);
        return std::string(data, small.space(0).section->used);
    };
    CHECK(text() == expected);
    CHECK_FALSE(log.append("long", std::string(4096, 'x')));
    CHECK(text() == expected);
    const std::string rest(4096 - 27 - 3, 'y');
    CHECK_FALSE(log.append("r", rest + "y"));
    CHECK(log.append("r", rest));
    CHECK(small.space(0).section->used == 4096);
    CHECK_FALSE(log.append("", ""));
    CHECK(text() == expected + "r" + '\0' + rest + '\0');
}
