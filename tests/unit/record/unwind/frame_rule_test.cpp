#include "core/record/unwind/frame_rule.h"

#include <catch2/catch.hpp>

using namespace cachealloc;
using Shape = FrameRule::Shape;

TEST_CASE("A rule is what was packed into it", "[unwind]") {
    for (const std::int64_t cfa : {8, 16, 4096, (1 << 23) - 8}) {
        const FrameRule rule(Shape::rsp, cfa, 0);
        CHECK(rule.shape() == Shape::rsp);
        CHECK(rule.cfa_offset() == cfa);
        CHECK(rule.rbp_offset() == -8);
        CHECK(rule.generation() == 0);
    }
    const FrameRule saved(Shape::rsp_saved, 32768, -32768);
    CHECK(saved.cfa_offset() == 32768);
    CHECK(saved.rbp_offset() == -32768);
    const FrameRule deref(Shape::rbp_deref, -8, -120);
    CHECK(deref.cfa_offset() == -8);
    CHECK(deref.rbp_offset() == -120);
}

TEST_CASE("A rule whose numbers do not fit is complex", "[unwind]") {
    CHECK(FrameRule(Shape::rsp, 1 << 23, 0) == FrameRule::complex());
    CHECK(FrameRule(Shape::rsp, 0, 0) == FrameRule::complex());
    CHECK(FrameRule(Shape::rsp_saved, 40000, -32769) == FrameRule::complex());
    CHECK(FrameRule(Shape::rsp_saved, 64, -8) == FrameRule::complex()); // the return address
    CHECK(FrameRule(Shape::rsp_saved, 64, -72) == FrameRule::complex());
    CHECK(FrameRule(Shape::rbp_saved, 16, -24) == FrameRule::complex());
    CHECK(FrameRule(Shape::rbp, -(1 << 23) - 1, 0) == FrameRule::complex());
}

TEST_CASE("A rule holds in its generation only", "[unwind]") {
    const FrameRule rule = FrameRule(Shape::rsp_saved, 64, -24).of_generation(0xfffe);
    CHECK(rule.generation() == 0xfffe);
    CHECK(rule.cfa_offset() == 64);
    CHECK(rule.rbp_offset() == -24);
    CHECK(rule.shape_in(0xfffe) == static_cast<std::uint32_t>(Shape::rsp_saved));
    CHECK(rule.shape_in(0xffff) >= FrameRule::kShapes);
    CHECK(rule.of_generation(7).shape_in(7) == static_cast<std::uint32_t>(Shape::rsp_saved));
    CHECK(FrameRule().shape_in(1) >= FrameRule::kShapes);
}
