#include "tools/commands/run.h"

#include "tools/commands/exit_codes.h"
#include "tools/commands/options.h"
#include "tools/commands/preload.h"
#include "tools/commands/report.h"
#include "tools/commands/text.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cachealloc::tools {

namespace {

namespace fs = std::filesystem;

constexpr int kCannotExecute = 126;
constexpr int kNotFound = 127;
constexpr int kSignalBase = 128;

template <class... Values>
int complain(int code, fmt::format_string<Values...> format, Values&&... values) {
    fmt::print(stderr, "cachealloc: {}\n", fmt::format(format, std::forward<Values>(values)...));
    return code;
}

volatile std::sig_atomic_t g_child = 0; // the handler needs it

void forward_signal(int number) {
    if (g_child > 0) ::kill(static_cast<pid_t>(g_child), number);
}

/// Only returns if the program cannot be executed.
int become(const std::vector<std::string>& command) {
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (const std::string& argument : command)
        arguments.push_back(const_cast<char*>(argument.c_str())); // exec does not change them
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    const int error = errno;
    return complain(error == ENOENT ? kNotFound : kCannotExecute, "{}: {}", command[0],
                    std::strerror(error));
}

/// Starts the program and waits for its end. Interrupts of the terminal reach it by themselves;
/// what is sent to this process alone is passed on.
int run_and_wait(const std::vector<std::string>& command, pid_t& child) {
    child = ::fork();
    if (child < 0)
        return complain(kCannotExecute, "cannot start a process: {}", std::strerror(errno));
    if (child == 0) ::_exit(become(command));
    g_child = child;
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    struct sigaction forward {};
    forward.sa_handler = forward_signal;
    forward.sa_flags = SA_RESTART;
    for (const int number : {SIGINT, SIGQUIT})
        ::sigaction(number, &ignore, nullptr);
    for (const int number : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
        ::sigaction(number, &forward, nullptr);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    g_child = 0;
    return WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

/// The recording that process `pid` wrote to `output`. What %e stands for is not known here: a
/// script's process has its interpreter's name.
std::string recording_of(const std::string& output, long pid) {
    const fs::path pattern = expand_output(output, pid, "\n");
    const std::string name = pattern.filename().string();
    const std::size_t mark = name.find('\n');
    if (mark == std::string::npos) return pattern.string();
    return newest_file(pattern.parent_path().string(), name.substr(0, mark), name.substr(mark + 1));
}

/// Reports about the recording at `path`; the program's exit code stays what it is.
void report_on(const std::string& path) {
    std::error_code error;
    if (path.empty() || !fs::exists(path, error)) {
        complain(0, "no recording: the program made no CUDA call, or recording is off");
        return;
    }
    try {
        ReadOptions read;
        read.file = path;
        static_cast<void>(report_main(read));
    } catch (const TraceError& unreadable) {
        complain(0, "{}", unreadable.what());
    }
}

/// Where the recording goes, or an exit code.
int prepare_output(const RunOptions& options, std::string& output) {
    std::error_code error;
    output = options.output.empty() ? "" : fs::absolute(options.output, error).string();
    if (output.empty()) return kFine;
    const fs::path folder = fs::path(output).parent_path();
    if (!fs::is_directory(folder, error))
        return complain(kUsage, "{}: there is no folder {}: make it, or name another file",
                        options.output, folder.string());
    if (output.find('%') != std::string::npos || !fs::exists(output, error)) return kFine;
    if (!options.overwrite)
        return complain(kUsage, "{} exists: name another file, or overwrite it with -f", output);
    // Never a directory, a device or the like: whoever asks for that has mistyped.
    if (!fs::is_regular_file(output, error) || !fs::remove(output, error))
        return complain(kUsage, "{} cannot be overwritten: name another file", output);
    return kFine;
}

} // namespace

std::string expand_output(const std::string& text, long pid, const std::string& program) {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    std::string expanded;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char next = text[i] == '%' && i + 1 < text.size() ? text[i + 1] : '\0';
        switch (next) {
        case 'p':
            expanded += std::to_string(pid);
            break;
        case 'h':
            expanded += host.data();
            break;
        case 'e':
            expanded += base_name(program);
            break;
        default:
            expanded += text[i];
            continue;
        }
        ++i;
    }
    return expanded;
}

int run_main(const RunOptions& options) {
    const char* const environment = std::getenv("CACHEALLOC_CONF");
    const std::string conf = options.conf ? *options.conf : environment ? environment : "";
    if (!check_conf(conf, options.conf ? "--conf" : "CACHEALLOC_CONF"))
        return complain(kUsage, "`cachealloc options` lists what is allowed");
    const std::string library = preload_library();
    if (library.empty())
        return complain(kUsage, "libcachealloc.so is neither beside this program nor in ../lib: "
                                "build or install both together");
    const std::string program = program_path(options.command[0]);
    if (program.empty()) return become(options.command); // the system's own words
    std::string output;
    if (const int code = prepare_output(options, output); code != kFine) return code;
    std::array<char, 64> folder{};
    const bool borrowed = options.report && output.empty();
    if (borrowed) {
        const char* const temporary = std::getenv("TMPDIR");
        fmt::format_to_n(folder.data(), folder.size() - 1, "{}/cachealloc-run-XXXXXX",
                         temporary && std::strlen(temporary) < 32 ? temporary : "/var/tmp");
        if (::mkdtemp(folder.data()) == nullptr)
            return complain(kUsage, "no folder for the recording: name a file with -o");
        output = std::string(folder.data()) + "/%e.%p.trace";
    }
    const char* const before = std::getenv("LD_PRELOAD");
    // The library may be built with a sanitizer itself, as in our own tests.
    std::vector<std::string> sanitizers = sanitizer_runtimes(program);
    for (std::string& one : sanitizer_runtimes(library))
        sanitizers.push_back(std::move(one));
    const std::string preload = preload_text(library, sanitizers, before ? before : "");
    ::setenv("LD_PRELOAD", preload.c_str(), 1);
    if (options.conf) ::setenv("CACHEALLOC_CONF", conf.c_str(), 1);
    if (!output.empty()) ::setenv("CACHEALLOC_TRACE", output.c_str(), 1);
    if (!options.report) return become(options.command);

    pid_t child = 0;
    const int code = run_and_wait(options.command, child);
    std::string recording = recording_of(output, child);
    // A launcher makes no CUDA call itself, but the processes that it starts do.
    if (recording.empty() && borrowed) recording = newest_file(folder.data(), "", ".trace");
    report_on(recording);
    std::error_code ignored;
    if (borrowed) fs::remove_all(folder.data(), ignored);
    return code;
}

} // namespace cachealloc::tools
