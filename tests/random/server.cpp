#include "tests/random/server.h"

#include "tests/random/interpreter.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace random_programs {

namespace {

constexpr std::size_t kMostOperations = 1000;
constexpr std::size_t kMostMessages = 16384;

[[noreturn]] void stop(const char* what) {
    std::perror(what);
    std::_Exit(2);
}

bool read_all(int file, void* to, std::size_t bytes) {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t got = read(file, at, bytes);
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

bool write_all(int file, const void* from, std::size_t bytes) {
    const auto* at = static_cast<const char*>(from);
    while (bytes > 0) {
        const ssize_t put = write(file, at, bytes);
        if (put <= 0) return false;
        at += put;
        bytes -= static_cast<std::size_t>(put);
    }
    return true;
}

bool send_bytes(int file, const void* from, std::uint32_t bytes) {
    return write_all(file, &bytes, sizeof bytes) && write_all(file, from, bytes);
}

bool receive_text(int file, std::string& text) {
    std::uint32_t bytes = 0;
    if (!read_all(file, &bytes, sizeof bytes)) return false;
    text.resize(bytes);
    return read_all(file, text.data(), bytes);
}

/// One program in 64 is recorded too: making the file takes 25 ms, as long as 10 programs.
std::string conf_of(const Program& program) {
    if (program.conf == "off" || program.operations.size() % 64 == 0) return program.conf;
    return program.conf + (program.conf.empty() ? "record:off" : ",record:off");
}

/// In the child: never returns to the server's loop.
[[noreturn]] void run_here(const Program& program, std::span<std::int32_t> codes, int messages,
                           unsigned limit_s, Interpreter interpreter) {
    dup2(messages, STDERR_FILENO);
    alarm(limit_s);
    setenv("CACHEALLOC_CONF", conf_of(program).c_str(), 1);
    setenv("SIMCUDA", program.sim.c_str(), 1);
    setenv("CACHEALLOC_TEST_DISABLE", program.off.c_str(), 1);
    std::exit(interpreter(program, codes));
}

} // namespace

int serve(unsigned limit_s, Interpreter interpreter) {
    // The answers go where nobody else writes.
    const int answers = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    const int messages = memfd_create("messages", MFD_CLOEXEC);
    const std::size_t room = kMostOperations * sizeof(std::int32_t);
    void* const shared =
        mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answers < 0 || messages < 0 || shared == MAP_FAILED) stop("serve");
    dup2(STDERR_FILENO, STDOUT_FILENO);
    const std::span<std::int32_t> codes(static_cast<std::int32_t*>(shared), kMostOperations);
    std::string text;
    while (receive_text(STDIN_FILENO, text)) {
        const auto program = parse_program(text, nullptr);
        if (!program) return 2;
        std::fill(codes.begin(), codes.end(), kNotReached);
        if (ftruncate(messages, 0) != 0) stop("ftruncate");
        lseek(messages, 0, SEEK_SET);
        const pid_t child = fork();
        if (child < 0) stop("fork");
        if (child == 0) run_here(*program, codes, messages, limit_s, interpreter);
        int status = 0;
        while (waitpid(child, &status, 0) < 0) {
        }
        const std::int32_t result =
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        std::array<char, kMostMessages> said{};
        const ssize_t length = pread(messages, said.data(), said.size(), 0);
        const auto count = std::min(program->operations.size(), kMostOperations);
        if (!write_all(answers, &result, sizeof result) ||
            !send_bytes(answers, codes.data(),
                        static_cast<std::uint32_t>(count * sizeof(std::int32_t))) ||
            !send_bytes(answers, said.data(),
                        static_cast<std::uint32_t>(std::max<ssize_t>(0, length))))
            return 2;
    }
    return 0;
}

Server::Server(const std::string& program, const std::string& preload, unsigned limit_s) {
    int to[2];
    int from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) stop("pipe2");
    const std::string limit = std::to_string(limit_s);
    child_ = fork();
    if (child_ < 0) stop("fork");
    if (child_ == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        if (!preload.empty()) setenv("LD_PRELOAD", preload.c_str(), 1);
        execl(program.c_str(), program.c_str(), "--serve", limit.c_str(), nullptr);
        stop(program.c_str());
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
}

Server::~Server() {
    close(to_);
    close(from_);
    waitpid(child_, nullptr, 0);
}

Run Server::run(const Program& program) {
    const std::string text = to_text(program);
    Run run;
    std::int32_t status = 0;
    std::string codes;
    if (!send_bytes(to_, text.data(), static_cast<std::uint32_t>(text.size())) ||
        !read_all(from_, &status, sizeof status) || !receive_text(from_, codes) ||
        !receive_text(from_, run.messages))
        stop("the server of programs is gone");
    run.status = status;
    run.codes.resize(codes.size() / sizeof(std::int32_t));
    if (!run.codes.empty()) {
        std::memcpy(run.codes.data(), codes.data(), run.codes.size() * sizeof(std::int32_t));
    }
    return run;
}

} // namespace random_programs
