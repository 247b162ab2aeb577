#include "shim/log.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <pthread.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace cachealloc;
using namespace cachealloc::shim;

namespace {

struct Outcome {
    std::vector<std::string> writes; // one element for each write(2) to standard error
    int status = -1;                 // as waitpid gives it
};

// Runs `body` in a child, since what was logged counts for the whole process. Its standard error is
// a socket that keeps the borders between writes. `body` returns whether all was well.
template <typename Body>
Outcome in_child(Body body) {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        _exit(body() ? 0 : 1);
    }
    close(ends[1]);
    Outcome outcome;
    std::array<char, 4 * kMaxLogLineBytes> packet;
    for (ssize_t size; (size = recv(ends[0], packet.data(), packet.size(), 0)) > 0;) {
        outcome.writes.emplace_back(packet.data(), static_cast<std::size_t>(size));
    }
    close(ends[0]);
    REQUIRE(waitpid(child, &outcome.status, 0) == child);
    return outcome;
}

using Lines = std::vector<std::string>;

} // namespace

TEST_CASE("log: one prefixed line, one write", "[log]") {
    const Outcome outcome = in_child([] {
        log(LogLevel::warning, "first");
        logf(LogLevel::error, "%d of %s", 2, "three");
        log(LogLevel::warning, "a\nb\x1b[2J\x7f\xc3\xa9");
        log(LogLevel::warning, "");
        return true;
    });
    CHECK(outcome.status == 0);
    CHECK(outcome.writes == Lines{"cachealloc: first\n", "cachealloc: 2 of three\n",
                                  "cachealloc: a?b?[2J?\xc3\xa9\n", "cachealloc: \n"});
}

TEST_CASE("log: a long line is cut where it is seen", "[log]") {
    const Outcome outcome = in_child([] {
        const std::string text(kMaxLogLineBytes, 'x');
        log(LogLevel::warning, text);
        logf(LogLevel::warning, "%s", text.c_str());
        const std::size_t room = kMaxLogLineBytes - std::string_view("cachealloc: \n").size();
        log(LogLevel::warning, text.substr(0, room));
        return true;
    });
    REQUIRE(outcome.writes.size() == 3);
    for (const std::string& line : outcome.writes) {
        CHECK(line.size() == kMaxLogLineBytes);
    }
    CHECK(outcome.writes[0].ends_with("xxx...\n"));
    CHECK(outcome.writes[1] == outcome.writes[0]);
    CHECK(outcome.writes[2].ends_with("xxxx\n"));
}

TEST_CASE("log: the detail decides what is written", "[log]") {
    const auto all = [](LogDetail detail) {
        return in_child([detail] {
            set_log_detail(detail);
            log(LogLevel::error, "error");
            log(LogLevel::warning, "warning");
            log(LogLevel::info, "info");
            log_report("asked for");
            return log_enabled(LogLevel::error) &&
                   log_enabled(LogLevel::warning) == (detail != LogDetail::quiet) &&
                   log_enabled(LogLevel::info) == (detail == LogDetail::verbose);
        });
    };
    const Outcome quiet = all(LogDetail::quiet);
    CHECK(quiet.status == 0);
    CHECK(quiet.writes == Lines{"cachealloc: error\n", "cachealloc: asked for\n"});
    const Outcome normal = all(LogDetail::normal);
    CHECK(normal.status == 0);
    CHECK(normal.writes ==
          Lines{"cachealloc: error\n", "cachealloc: warning\n", "cachealloc: asked for\n"});
    CHECK(all(LogDetail::verbose).writes.size() == 4);
    CHECK(in_child([] {
              log(LogLevel::info, "not by default");
              return true;
          }).writes.empty());
}

TEST_CASE("log: the number of lines is bounded, a report's is not", "[log]") {
    const Outcome outcome = in_child([] {
        for (int i = 0; i < 1000; ++i) {
            log(LogLevel::info, "does not count");
            log(LogLevel::warning, std::to_string(i));
        }
        std::string report;
        for (int i = 0; i < 100; ++i) {
            report += "row\n";
        }
        log_report(report);
        return true;
    });
    REQUIRE(outcome.writes.size() == kMaxLogLines + 1 + 100);
    CHECK(outcome.writes[kMaxLogLines - 1] == "cachealloc: 31\n");
    CHECK(outcome.writes[kMaxLogLines] == "cachealloc: further messages suppressed\n");
    CHECK(outcome.writes.back() == "cachealloc: row\n");
}

TEST_CASE("log: once per key", "[log]") {
    const Outcome outcome = in_child([] {
        bool fine = !log_once("a", LogLevel::info, "disabled, so it is not used up");
        set_log_detail(LogDetail::verbose);
        fine = log_once("a", LogLevel::info, "a") && fine;
        fine = !log_once("a", LogLevel::error, "again") && fine;
        fine = log_once("b", LogLevel::error, "b") && fine;
        for (int i = 0; i < 1000; ++i) {
            log_once("key " + std::to_string(i), LogLevel::error, "x");
        }
        return !log_once("a", LogLevel::error, "still") && fine;
    });
    CHECK(outcome.status == 0);
    REQUIRE(outcome.writes.size() == kMaxLogLines + 1);
    CHECK(outcome.writes[0] == "cachealloc: a\n");
    CHECK(outcome.writes[1] == "cachealloc: b\n");
}

TEST_CASE("log: threads share one bound and no line", "[log]") {
    const Outcome outcome = in_child([] {
        std::vector<std::thread> threads;
        for (int t = 0; t < 8; ++t) {
            threads.emplace_back([t] {
                for (int i = 0; i < 100; ++i) {
                    log_once("one", LogLevel::warning, "once");
                    logf(LogLevel::warning, "thread %d", t);
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        return true;
    });
    CHECK(outcome.status == 0);
    CHECK(outcome.writes.size() == kMaxLogLines + 1);
    CHECK(std::ranges::count(outcome.writes, "cachealloc: once\n") == 1);
    CHECK(std::ranges::count(outcome.writes, "cachealloc: further messages suppressed\n") == 1);
    CHECK(std::ranges::all_of(outcome.writes, [](const std::string& line) {
        return line.starts_with("cachealloc: ") && std::ranges::count(line, '\n') == 1 &&
               line.ends_with('\n');
    }));
}

TEST_CASE("log: a standard error that nobody reads ends nothing", "[log]") {
    const Outcome gone = in_child([] {
        std::array<int, 2> ends{};
        if (pipe(ends.data()) != 0) return false;
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        errno = 1234;
        log(LogLevel::warning, "nobody hears this");
        sigset_t pending;
        sigpending(&pending);
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        return errno == 1234 && sigismember(&pending, SIGPIPE) == 0 &&
               sigismember(&mask, SIGPIPE) == 0;
    });
    CHECK(gone.status == 0);
    const Outcome pending_before = in_child([] {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &set, nullptr);
        raise(SIGPIPE); // the host's own, which it wants to see
        log(LogLevel::warning, "x");
        sigpending(&set);
        return sigismember(&set, SIGPIPE) == 1;
    });
    CHECK(pending_before.status == 0);
    const Outcome closed = in_child([] {
        close(STDERR_FILENO);
        errno = 1234;
        log(LogLevel::warning, "x");
        return errno == 1234;
    });
    CHECK(closed.status == 0);
    CHECK(closed.writes.empty());
}

TEST_CASE("log: a cancelled thread finishes its line and is cancelled later", "[log]") {
    const Outcome outcome = in_child([] {
        static bool after_log = false;
        static bool after_test = false;
        pthread_t thread{};
        pthread_create(
            &thread, nullptr,
            [](void*) -> void* {
                pthread_cancel(pthread_self());
                log(LogLevel::warning, "whole");
                after_log = true;
                pthread_testcancel();
                after_test = true;
                return nullptr;
            },
            nullptr);
        void* result = nullptr;
        pthread_join(thread, &result);
        return after_log && !after_test && result == PTHREAD_CANCELED;
    });
    CHECK(outcome.status == 0);
    CHECK(outcome.writes == Lines{"cachealloc: whole\n"});
}

TEST_CASE("log: a child logs after its parent did", "[log]") {
    const Outcome outcome = in_child([] {
        log(LogLevel::warning, "parent");
        const pid_t child = fork();
        if (child == 0) {
            log(LogLevel::warning, "child");
            _exit(0);
        }
        int status = -1;
        return waitpid(child, &status, 0) == child && status == 0;
    });
    CHECK(outcome.status == 0);
    CHECK(outcome.writes == Lines{"cachealloc: parent\n", "cachealloc: child\n"});
}
