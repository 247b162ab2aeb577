// Functions whose frames differ in every way that compilers have, to build stacks from.
#pragma once

#include <cstdint>
#include <span>

namespace cachealloc::test {

/// What is still to be called: at each level the function that `program` names, then `bottom`.
struct Calls {
    std::span<const std::uint8_t> program;
    void (*bottom)(void*);
    void* argument;
    std::uint64_t sum = 0; ///< so that no call is the last thing a function does
};

/// Compiled without and with frame pointers.
void call_plain(Calls& calls);
void call_with_frame_pointers(Calls& calls);

/// Numbers in a program are taken modulo this; odd ones call a function of the other kind.
inline constexpr unsigned kCallShapes = 16;

} // namespace cachealloc::test
