// A thousand threads, 32 at a time, each of which allocates once and ends. Every allocation has a
// size of its own, so that a recording can be asked which thread made which. Prints the private
// memory of the process after the first 200 and after the last: it must not grow by the thread.
#include "tests/integration/crash/driver_user.h"

#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 1000;
constexpr int kAtOnce = 32;
constexpr int kFirst = 200;

// KiB of memory that belongs to the process alone: pages of files are not counted.
long private_kib() {
    std::FILE* const status = std::fopen("/proc/self/status", "r");
    crash::require(status != nullptr, "/proc/self/status");
    char line[256];
    long kib = -1;
    while (std::fgets(line, sizeof line, status) != nullptr) {
        if (std::strncmp(line, "RssAnon:", 8) == 0) kib = std::atol(line + 8);
    }
    std::fclose(status);
    return kib;
}

} // namespace

int main() {
    const crash::Driver driver;
    long early = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&driver, i] {
            driver.enter();
            driver.give_back(driver.take(static_cast<std::size_t>(1000000 + i)));
        });
        if (threads.size() == kAtOnce || i + 1 == kThreads) {
            for (std::thread& thread : threads)
                thread.join();
            threads.clear();
        }
        if (i == kFirst) early = private_kib();
    }
    std::fprintf(stderr, "private KiB %ld then %ld\n", early, private_kib());
    std::puts("short_threads ok");
    return 7;
}
