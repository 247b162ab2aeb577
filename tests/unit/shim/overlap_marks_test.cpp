#include "shim/overlap_marks.h"

#include <catch2/catch.hpp>

using namespace cachealloc::shim;

namespace {

OverlapMarks::Key stream(std::uintptr_t handle, const void* thread = nullptr) {
    return {reinterpret_cast<CUstream>(handle), thread};
}

} // namespace

TEST_CASE("OverlapMarks: a stream is in order until something is handed out") {
    OverlapMarks marks;
    CHECK_FALSE(marks.in_order(stream(0), 0)); // never seen: unknown
    marks.launched(stream(0), 7);
    CHECK(marks.in_order(stream(0), 7));
    CHECK_FALSE(marks.in_order(stream(0), 8));
}

TEST_CASE("OverlapMarks: one stream's launch says nothing about another's") {
    OverlapMarks marks;
    char threads[2];
    marks.launched(stream(2, &threads[0]), 7);
    CHECK_FALSE(marks.in_order(stream(2, &threads[1]), 7));
    // More streams than places: whoever shares one is forgotten, never mistaken.
    for (std::uintptr_t handle = 0x1000; handle < 0x1000 + 1000 * 16; handle += 16) {
        CHECK_FALSE(marks.in_order(stream(handle), 7));
        marks.launched(stream(handle), 7);
        CHECK(marks.in_order(stream(handle), 7));
    }
}
