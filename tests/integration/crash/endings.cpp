// Four threads allocate and free; once each has made 500 pairs the process ends in the way that
// the command line names, while they go on. `kill`: it says "ready" and waits for its end.
//   endings exit|return|_exit|quick_exit|abort|segv|kill
#include "tests/integration/crash/driver_user.h"

#include <atomic>
#include <csignal>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int kThreads = 4;
constexpr int kPairs = 500;

std::atomic<int> g_far_enough{0};
std::atomic<bool> g_stop{false};

void work(const crash::Driver& driver) {
    driver.enter();
    for (int pair = 0; !g_stop; ++pair) {
        const crash::Address address = driver.take(4096);
        driver.give_back(address);
        if (pair == kPairs) ++g_far_enough;
    }
}

void end(std::string_view way) {
    if (way == "_exit") _exit(7);
    if (way == "quick_exit") std::quick_exit(7);
    if (way == "abort") std::abort();
    if (way == "exit") std::exit(7);
    if (way == "segv") {
        volatile std::uintptr_t nowhere = 8; // not seen through by the compiler
        *reinterpret_cast<volatile int*>(nowhere) = 1;
    }
    if (way == "kill") {
        std::puts("ready");
        std::fflush(stdout);
        for (;;)
            pause();
    }
}

} // namespace

int main(int argc, char** argv) {
    const std::string_view way = argc > 1 ? argv[1] : "return";
    const crash::Driver driver;
    const crash::Address kept = driver.take(5 << 20);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back(work, std::cref(driver));
    while (g_far_enough < kThreads)
        std::this_thread::yield();
    if (way == "return" || way == "exit") { // the others leave with their threads at work
        g_stop = true;
        for (std::thread& thread : threads)
            thread.join();
    }
    end(way);
    driver.give_back(kept);
    std::puts("done");
    return 7;
}
