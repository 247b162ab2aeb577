// The only source that includes spdlog: it costs seconds to compile. Header-only, with a
// header-only fmt, so that the library needs no shared library for it and exports nothing of it.
// spdlog's registry, threads, clocks and thread-local state are not used: a logger made on the
// first line with a sink of our own.
#define SPDLOG_HEADER_ONLY
#define SPDLOG_FMT_EXTERNAL
#define SPDLOG_NO_THREAD_ID
#define SPDLOG_NO_TLS
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#define FMT_STATIC_THOUSANDS_SEPARATOR ','

#include "shim/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <memory>
#include <pthread.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

namespace cachealloc::shim {
namespace {

constexpr std::string_view kPrefix = "cachealloc: ";
constexpr std::string_view kCut = "...";
constexpr std::string_view kSuppressed = "further messages suppressed";

// ---- One line to standard error ---------------------------------------------------------------

// Keeps the thread as it was found: errno, and no cancellation in the middle of a line.
class Undisturbed {
  public:
    Undisturbed() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_); }
    ~Undisturbed() {
        pthread_setcancelstate(cancel_state_, nullptr);
        errno = errno_;
    }
    Undisturbed(const Undisturbed&) = delete;
    Undisturbed& operator=(const Undisturbed&) = delete;

  private:
    int errno_ = errno;
    int cancel_state_ = PTHREAD_CANCEL_ENABLE;
};

// A standard error whose reader has gone must not end the host: while this lives SIGPIPE is held
// back, and one that came meanwhile is taken away. One that was pending before is left alone; the
// signal of a write is directed at the writing thread, so no other thread's can be taken.
class NoBrokenPipe {
  public:
    NoBrokenPipe() noexcept {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        was_pending_ = pending();
        held_ = pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
    }
    ~NoBrokenPipe() {
        if (!held_) return;
        if (!was_pending_ && pending()) {
            const timespec at_once{};
            while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoBrokenPipe(const NoBrokenPipe&) = delete;
    NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

  private:
    static bool pending() noexcept {
        sigset_t set;
        return sigpending(&set) == 0 && sigismember(&set, SIGPIPE) == 1;
    }

    sigset_t pipe_;
    sigset_t before_;
    bool was_pending_ = false;
    bool held_ = false;
};

void write_line(std::string_view text) noexcept {
    std::array<char, kMaxLogLineBytes> line;
    constexpr std::size_t kRoom = kMaxLogLineBytes - kPrefix.size() - 1;
    const std::size_t length = std::min(text.size(), kRoom);
    char* end = std::ranges::copy(kPrefix, line.data()).out;
    end = std::transform(text.data(), text.data() + length, end,
                         [](char c) { return (c >= 0 && c < ' ') || c == '\x7f' ? '?' : c; });
    if (length < text.size()) std::ranges::copy(kCut, end - kCut.size());
    *end++ = '\n';

    const Undisturbed undisturbed;
    const NoBrokenPipe no_broken_pipe;
    const char* next = line.data();
    while (next != end) { // once, but for signals and small pipes
        const ssize_t written = ::write(STDERR_FILENO, next, static_cast<std::size_t>(end - next));
        if (written > 0) {
            next += written;
        } else if (written == 0 || errno != EINTR) {
            return;
        }
    }
}

// ---- The logger -------------------------------------------------------------------------------

// Without state, hence without a lock that a fork could leave taken.
class StderrSink final : public spdlog::sinks::sink {
  public:
    void log(const spdlog::details::log_msg& message) override {
        write_line({message.payload.data(), message.payload.size()});
    }
    void flush() override {}
    void set_pattern(const std::string&) override {}
    void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

constinit std::atomic<spdlog::logger*> g_logger{nullptr};
constinit std::atomic<LogDetail> g_detail{LogDetail::normal};
constinit std::atomic<std::uint32_t> g_lines{0};
constinit std::array<std::atomic<std::uint64_t>, 128> g_said{}; // hashes of keys; 0: free

// Threads that come at once each make one, and the first to publish its own wins: nobody waits, so
// a fork at any moment leaves a child that can log. Never destroyed: lines are written during exit.
spdlog::logger& logger() {
    if (spdlog::logger* const made = g_logger.load(std::memory_order_acquire)) return *made;
    auto mine = std::make_unique<spdlog::logger>("cachealloc", std::make_shared<StderrSink>());
    mine->set_level(spdlog::level::trace); // log_enabled has decided already
    mine->set_error_handler([](const std::string&) {});
    spdlog::logger* other = nullptr;
    if (g_logger.compare_exchange_strong(other, mine.get(), std::memory_order_acq_rel))
        return *mine.release();
    return *other;
}

spdlog::level::level_enum spdlog_level(LogLevel level) noexcept {
    switch (level) {
    case LogLevel::error:
        return spdlog::level::err;
    case LogLevel::warning:
        return spdlog::level::warn;
    case LogLevel::info:
        break;
    }
    return spdlog::level::info;
}

void emit(LogLevel level, std::string_view text) noexcept {
    try {
        logger().log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
    } catch (const std::exception&) { // no memory for the logger
        write_line(text);
    }
}

// Takes one of the lines this process may still write; the first one too many says so.
bool take_line() noexcept {
    if (g_lines.load(std::memory_order_relaxed) > kMaxLogLines) return false; // and never wraps
    const std::uint32_t before = g_lines.fetch_add(1, std::memory_order_relaxed);
    if (before == kMaxLogLines) emit(LogLevel::warning, kSuppressed);
    return before < kMaxLogLines;
}

std::uint64_t hash(std::string_view key) noexcept { // FNV-1a, never 0
    std::uint64_t value = 14695981039346656037U;
    for (const char c : key) {
        value = (value ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }
    return value | 1;
}

// Whether `key` was not said before; it counts as said from now on.
bool first_time(std::string_view key) noexcept {
    const std::uint64_t mark = hash(key);
    for (std::atomic<std::uint64_t>& slot : g_said) {
        std::uint64_t found = slot.load(std::memory_order_relaxed);
        if (found == 0 && slot.compare_exchange_strong(found, mark, std::memory_order_relaxed))
            return true;
        if (found == mark) return false;
    }
    return false;
}

} // namespace

void set_log_detail(LogDetail detail) noexcept {
    g_detail.store(detail, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) noexcept {
    switch (g_detail.load(std::memory_order_relaxed)) {
    case LogDetail::quiet:
        return level == LogLevel::error;
    case LogDetail::normal:
        return level != LogLevel::info;
    case LogDetail::verbose:
        break;
    }
    return true;
}

void log(LogLevel level, std::string_view text) noexcept {
    if (log_enabled(level) && take_line()) emit(level, text);
}

void logf(LogLevel level, const char* format, ...) noexcept {
    if (!log_enabled(level)) return;
    const int before = errno; // vsnprintf may set it
    // One byte more than fits, so that `write_line` sees that a line was cut.
    std::array<char, kMaxLogLineBytes + 1> text;
    std::va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    errno = before;
    if (length < 0) return log(level, format);
    log(level, {text.data(), std::min(static_cast<std::size_t>(length), text.size() - 1)});
}

bool log_once(std::string_view key, LogLevel level, std::string_view text) noexcept {
    if (!log_enabled(level) || !first_time(key)) return false;
    log(level, text);
    return true;
}

void log_report(std::string_view text) noexcept {
    while (!text.empty()) {
        const std::size_t newline = std::min(text.find('\n'), text.size());
        emit(LogLevel::info, text.substr(0, newline));
        text.remove_prefix(std::min(newline + 1, text.size()));
    }
}

} // namespace cachealloc::shim
