// Processes that fork and start others after they have used CUDA. Children do not touch CUDA, which
// a forked child cannot use; what they start may.
//   forks fork|double_fork|vfork|spawn [PROGRAM ARGUMENTS...]
#include "tests/integration/crash/driver_user.h"

#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace {

void expect_status(pid_t child, int expected) {
    int status = 0;
    crash::require(child > 0 && waitpid(child, &status, 0) == child,
                   "a child that can be waited for");
    crash::require(WIFEXITED(status) && WEXITSTATUS(status) == expected, "the child's exit status");
}

// What a child does that has nothing to do with CUDA; it leaves through exit(), with all handlers.
[[noreturn]] void childs_work(int status) {
    void* const memory = std::malloc(100000);
    std::free(memory);
    std::exit(status);
}

} // namespace

int main(int argc, char** argv) {
    const std::string_view way = argc > 1 ? argv[1] : "fork";
    const crash::Driver driver;
    const crash::Address first = driver.take(1 << 20);
    if (way == "fork") {
        for (int i = 0; i < 3; ++i) {
            const pid_t child = fork();
            if (child == 0) childs_work(40 + i);
            expect_status(child, 40 + i);
        }
    } else if (way == "double_fork") {
        const pid_t child = fork();
        if (child == 0) {
            const pid_t grandchild = fork();
            if (grandchild == 0) childs_work(51);
            expect_status(grandchild, 51);
            childs_work(50);
        }
        expect_status(child, 50);
    } else if (way == "vfork") {
        const pid_t child = vfork();
        if (child == 0) {
            execv(argv[2], argv + 2);
            _exit(99);
        }
        expect_status(child, 7);
    } else if (way == "spawn") {
        pid_t child = 0;
        crash::require(posix_spawn(&child, argv[2], nullptr, nullptr, argv + 2, environ) == 0,
                       "posix_spawn");
        expect_status(child, 7);
    } else {
        crash::give_up("such a way");
    }
    // The parent goes on: its later events must be in its file too.
    const crash::Address later = driver.take(3 << 20);
    driver.give_back(first);
    driver.give_back(later);
    std::puts("forks ok");
    std::fflush(stdout);
    _exit(7); // so that the file must say that nobody has left through exit()
}
