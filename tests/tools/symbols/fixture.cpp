#include "fixture.h"

// The calls below must not be tail calls, or there would be nothing to return to: each result
// passes through an empty piece of assembly first.
#define KEPT(value) asm volatile("" : "+r"(value))
#define EXPORTED __attribute__((visibility("default")))

namespace {

__attribute__((noinline)) void* here() {
    return __builtin_return_address(0);
}

int inner_line, middle_line, outer_line;

struct Places {
    static inline __attribute__((always_inline)) void* inner() {
        inner_line = __LINE__ + 1;
        void* place = here();
        KEPT(place);
        return place;
    }
};

} // namespace

namespace fixture {

inline __attribute__((always_inline)) void* middle(int) {
    middle_line = __LINE__ + 1;
    void* place = Places::inner();
    KEPT(place);
    return place;
}

struct Box {
    __attribute__((noinline)) static void* method(int, const char*) {
        outer_line = __LINE__ + 1;
        void* place = here();
        KEPT(place);
        return place;
    }
};

} // namespace fixture

namespace {

__attribute__((noinline)) void* local_function() {
    outer_line = __LINE__ + 1;
    void* place = here();
    KEPT(place);
    return place;
}

} // namespace

extern "C" {

EXPORTED FixturePlace fixture_exported() {
    outer_line = __LINE__ + 1;
    void* place = fixture::middle(1);
    KEPT(place);
    return {place, {inner_line, middle_line, outer_line}};
}

EXPORTED FixturePlace fixture_local() {
    void* place = local_function();
    KEPT(place);
    return {place, {outer_line, 0, 0}};
}

EXPORTED FixturePlace fixture_method() {
#ifdef FIXTURE_OTHER // another build of the library: its places lie elsewhere
    asm volatile("nop; nop; nop; nop");
#endif
    void* place = fixture::Box::method(1, "");
    KEPT(place);
    return {place, {outer_line, 0, 0}};
}

} // extern "C"
