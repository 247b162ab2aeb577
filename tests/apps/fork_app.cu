// Uses CUDA, then forks: one child that never touches CUDA and leaves by _exit, one that leaves
// through its exit handlers, one that runs another program. The parent's memory stays as it was
// and its allocations go on.
//
// stdout: the same wherever it runs. "--child" is what the third child runs.
#include "tests/apps/sum_kernels.cuh"

#include <sys/wait.h>
#include <unistd.h>

namespace {

using app::Sum;
using app::Word;

constexpr std::size_t kWords = 100000;

/// Runs `child` in a forked process; its exit status, or -1 if it did not end by itself.
template <typename Child>
int in_child(Child child) {
    std::fflush(nullptr); // What is buffered must not be written twice.
    pid_t pid = fork();
    REQUIRE_TRUE(pid >= 0);
    if (pid == 0) {
        child();
        _exit(99);
    }
    int status = 0;
    REQUIRE_TRUE(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Word* filled(Word tag) {
    Word* data = nullptr;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data), kWords * sizeof(Word)));
    fill_words<<<app::kSumGrid, app::kSumBlock>>>(data, kWords, tag);
    CUDA_CHECK_LAUNCH();
    return data;
}

bool holds(const Word* data, Word tag) {
    Sum* sum = nullptr;
    Sum total = 0;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&sum), sizeof(Sum)));
    CUDA_CHECK(cudaMemset(sum, 0, sizeof(Sum)));
    add_words<<<app::kSumGrid, app::kSumBlock>>>(data, kWords, sum);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaMemcpy(&total, sum, sizeof total, cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(sum));
    return total == app::pattern_sum(tag, kWords);
}

} // namespace

int main(int argc, char** argv) {
    if (app::flag(argc, argv, "--child")) {
        std::printf("fork_app: the other program ran\n");
        return 7;
    }
    Word* before = filled(11);
    int quiet = in_child([] { _exit(5); });
    int leaving = in_child([] { std::exit(6); });
    int other = in_child([&] { execl("/proc/self/exe", argv[0], "--child", nullptr); });
    Word* after = filled(12);
    bool right = holds(before, 11) && holds(after, 12);
    CUDA_CHECK(cudaFree(before));
    CUDA_CHECK(cudaFree(after));
    std::printf("fork_app: children ended with %d %d %d, memory %s\n", quiet, leaving, other,
                right ? "right" : "WRONG");
    return right && quiet == 5 && leaving == 6 && other == 7 ? 0 : 1;
}
