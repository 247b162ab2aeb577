// Allocates at the bottom of a recursion 10,000 calls deep, and at the top.
#include "tests/integration/crash/driver_user.h"

namespace {

constexpr int kDepth = 10000;

// The work after the call keeps it from being a loop.
__attribute__((noinline)) int descend(const crash::Driver& driver, int left) {
    if (left == 0) {
        const crash::Address address = driver.take(3 << 20);
        driver.give_back(address);
        return 0;
    }
    const int below = descend(driver, left - 1);
    asm volatile("" ::: "memory");
    return below + 1;
}

} // namespace

int main() {
    const crash::Driver driver;
    for (int round = 0; round < 3; ++round)
        crash::require(descend(driver, kDepth) == kDepth, "the depth");
    driver.give_back(driver.take(1 << 20));
    std::puts("recursion ok");
    return 7;
}
