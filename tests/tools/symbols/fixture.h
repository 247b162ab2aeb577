// What the fixture libraries have: a known function at a known line, with calls inlined into it.
#pragma once

#include <cstdint>

/// A return address, and the lines of the calls that lead to it, innermost first.
struct FixturePlace {
    void* address;
    int lines[3];
};

extern "C" {
/// Of a call in an exported function, two calls inlined deep.
FixturePlace fixture_exported();
/// Of a call in a function that is local to the file.
FixturePlace fixture_local();
/// Of a call in a C++ function with arguments, in a namespace, in a class.
FixturePlace fixture_method();
}
