#include "shim/recording.h"

#include "core/record/recorder.h"
#include "shim/driver.h"
#include "shim/log.h"
#include "shim/objects.h"
#include "shim/process.h"
#include "shim/statistics.h"
#include "shim/trace_places.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace cachealloc::shim {

namespace {

// Settings of others that explain what a recording shows.
constexpr const char* kEnvironment[] = {"CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF",
                                        "PYTORCH_ALLOC_CONF", "LD_PRELOAD"};

// The first bytes of a file, cut to `room`.
std::string_view read_file(const char* path, char* text, std::size_t room) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    std::size_t length = 0;
    while (length < room) {
        const ssize_t got = read(file, text + length, room - length);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        length += static_cast<std::size_t>(got);
    }
    close(file);
    return {text, length};
}

void say_that_nothing_is_recorded(const TracePlaces& places, const char* path, int error) {
    const char* const why = strerrordesc_np(error);
    if (why == nullptr) {
        log(LogLevel::warning, "nothing is recorded: no directory of yours under TMPDIR, /var/tmp "
                               "or /tmp; set CACHEALLOC_TRACE_DIR, or CACHEALLOC_CONF=record:off");
        return;
    }
    logf(LogLevel::warning, "nothing is recorded: %s: %s; set %s, or CACHEALLOC_CONF=record:off",
         path, why,
         places.named() ? "CACHEALLOC_TRACE to a name that is free (%p: the process)"
                        : "CACHEALLOC_TRACE_DIR to a directory with room");
}

} // namespace

void Recording::start() {
    const Options& options = process_.options;
    if (!options.record || options.off) return;
    const std::unique_ptr<TracePlaces> places(new (std::nothrow) TracePlaces);
    if (places == nullptr) return;
    places->remove_old();
    RecorderSettings settings;
    settings.paths = places->paths();
    settings.path_count = places->size();
    settings.ring_bytes = options.ring_bytes();
    settings.stack_depth = static_cast<std::uint32_t>(options.stack_depth);
    stacks_.choose(options.unwinder);
    settings.stacks = options.stacks != StackMode::off ? &stacks_ : nullptr;
    settings.free_stacks = options.stacks == StackMode::all;
    settings.refresh = refresh;
    settings.refresh_context = this;
    int error = 0;
    std::size_t used = 0;
    if (settings.path_count != 0) recorder_ = Recorder::start(settings, error, used);
    if (recorder_ == nullptr) {
        const char* const path = settings.path_count == 0 ? "" : settings.paths[used];
        say_that_nothing_is_recorded(*places, path, settings.path_count == 0 ? -1 : error);
        return;
    }
    stacks_.started(*recorder_);
    named_ = places->named();
    if (places->directory_named() && used != 0) {
        logf(LogLevel::warning, "no room for a recording in CACHEALLOC_TRACE_DIR: it is %s",
             recorder_->path());
    }
    describe_process();
}

void Recording::describe_process() {
    constexpr std::size_t kRoom = 4096;
    char text[kRoom];
    Recorder& recorder = *recorder_;
    recorder.set("version", CACHEALLOC_VERSION);
    const ssize_t length = readlink("/proc/self/exe", text, kRoom);
    if (length > 0) recorder.set("exe", {text, static_cast<std::size_t>(length)});
    std::string_view command = read_file("/proc/self/cmdline", text, kRoom);
    if (!command.empty() && command.back() == '\0') command.remove_suffix(1);
    for (std::size_t i = 0; i < command.size(); ++i) {
        if (text[i] == '\0') text[i] = ' ';
    }
    recorder.set("command", command);
    if (getcwd(text, kRoom) != nullptr) recorder.set("cwd", text);
    if (gethostname(text, kRoom) == 0) recorder.set("host", text);
    recorder.set("trace", recorder.path());
    const char* const conf = std::getenv("CACHEALLOC_CONF");
    recorder.set("conf", conf != nullptr ? conf : "");
    recorder.set("options", format_options(process_.options));
    for (const char* name : kEnvironment) {
        if (const char* const value = std::getenv(name)) recorder.set(name, value);
    }
}

// What CUDA it speaks, and the kernel module's own version where there is one.
void Recording::describe_driver() {
    int cuda = 0;
    if (driver_described_ || real.cuDriverGetVersion(&cuda) != CUDA_SUCCESS) return;
    driver_described_ = true;
    char module[64];
    std::string_view version = read_file("/sys/module/nvidia/version", module, sizeof module);
    version = version.substr(0, version.find('\n'));
    char text[128];
    const int length = std::snprintf(text, sizeof text, "%d.%d%s%.*s", cuda / 1000,
                                     cuda % 1000 / 10, version.empty() ? "" : " / ",
                                     static_cast<int>(version.size()), version.data());
    recorder_->set("driver", {text, static_cast<std::size_t>(length)});
}

void Recording::out_of_memory(std::uint64_t bytes) {
    std::size_t free = 0;
    std::size_t total = 0;
    if (!process_.capturing()) real.cuMemGetInfo_v2(&free, &total);
    const RecordedContext context = contexts.current();
    MemoryEvent event;
    event.size = bytes;
    event.stream = free;
    event.device = context.device;
    event.pool = context.number;
    recorder_->note(trace::EventKind::out_of_memory, event);
    recorder_->mark_seen(trace::kOutOfMemory);
    if (ran_out_.exchange(true, std::memory_order_relaxed)) return;
    logf(LogLevel::warning, "to see who holds the device's memory: cachealloc report %s",
         recorder_->path());
}

void Recording::write_statistics(bool pieces) {
    publish_stack_counts(*recorder_);
    const Statistics all = collect_statistics(process_);
    for (const StatisticRow& row : kStatisticRows)
        recorder_->set_statistic(row.name, value_of(row, all));
    recorder_->set_statistic("level", static_cast<std::uint64_t>(all.level));
    for (int device = 0; device < static_cast<int>(trace::kDevices); ++device) {
        MemoryStats stats;
        if (!collect_memory_stats(process_, device, pieces, stats)) continue;
        char ordinal[16];
        std::snprintf(ordinal, sizeof ordinal, "%d", device);
        for_each_memory_stat(
            stats,
            [this](const char* name, std::int64_t value) {
                recorder_->set_statistic(name, static_cast<std::uint64_t>(value));
            },
            ordinal);
    }
}

void Recording::refresh(void* self) {
    static_cast<Recording*>(self)->write_statistics(false);
}

void Recording::exiting() {
    if (recorder_ == nullptr) return;
    write_statistics(true);
    recorder_->exiting(!named_ && !ran_out_.load(std::memory_order_relaxed));
}

} // namespace cachealloc::shim
