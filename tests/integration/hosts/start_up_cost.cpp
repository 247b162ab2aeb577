// What the preload costs a process that never touches CUDA: starts /bin/true in turns with and
// without it and prints the medians. It prints, it does not judge: machines differ.
//
// usage: start_up_cost LIBRARY [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <vector>

namespace {

double start_us(const std::string& preload) {
    std::string program = "/bin/true";
    std::string variable = "LD_PRELOAD=" + preload;
    char* arguments[] = {program.data(), nullptr};
    char* environment[] = {preload.empty() ? nullptr : variable.data(), nullptr};
    const auto begin = std::chrono::steady_clock::now();
    pid_t child = 0;
    int status = -1;
    if (posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environment) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
        std::printf("FAILED: /bin/true with preload '%s': status %d\n", preload.c_str(), status);
        std::exit(1);
    }
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
        .count();
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                     values.end());
    return values[values.size() / 2];
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::puts("usage: start_up_cost LIBRARY [rounds]");
        return 2;
    }
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 200;
    std::vector<double> native;
    std::vector<double> preloaded;
    for (int i = 0; i < rounds; ++i) {
        native.push_back(start_us(""));
        preloaded.push_back(start_us(argv[1]));
    }
    std::printf("start of /bin/true, median of %d: %.0f us natively, %.0f us under the preload "
                "(+%.0f us)\n",
                rounds, median(native), median(preloaded), median(preloaded) - median(native));
    return 0;
}
