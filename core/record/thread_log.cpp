#include "core/record/thread_log.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cachealloc {

using trace::ThreadRecord;

ThreadLog::ThreadLog(TraceFile& file, SectionSpace& space) : file_(file), space_(space) {}

ThreadRecord* ThreadLog::record(std::uint32_t number) const {
    return number == 0 ? nullptr : reinterpret_cast<ThreadRecord*>(space_.data) + (number - 1);
}

std::uint32_t ThreadLog::enter(std::uint64_t now) {
    std::atomic<std::uint64_t>& used = space_.section->used;
    std::uint64_t offset = used.load(std::memory_order_relaxed);
    do {
        const std::uint64_t end = offset + sizeof(ThreadRecord);
        if (end > space_.ready() && !file_.grow(space_, end)) return 0;
    } while (!used.compare_exchange_weak(offset, offset + sizeof(ThreadRecord),
                                         std::memory_order_relaxed));
    const auto number = static_cast<std::uint32_t>(offset / sizeof(ThreadRecord)) + 1;
    ThreadRecord& mine = *record(number);
    mine.os_id = static_cast<std::uint32_t>(syscall(SYS_gettid));
    mine.start = now;
    refresh_name(number);
    mine.number = number;
    return number;
}

void ThreadLog::refresh_name(std::uint32_t number) {
    ThreadRecord* const mine = record(number);
    if (mine == nullptr) return;
    std::array<char, 16> name{}; // the kernel's length of a thread's name, its NUL included
    static_assert(sizeof mine->name > name.size());
    if (prctl(PR_GET_NAME, name.data(), 0, 0, 0) != 0) return;
    if (std::memcmp(mine->name, name.data(), name.size()) == 0) return;
    std::memcpy(mine->name, name.data(), name.size());
}

void ThreadLog::set_end(std::uint32_t number, std::uint64_t time) {
    if (ThreadRecord* const mine = record(number); mine != nullptr)
        mine->end.store(time, std::memory_order_relaxed);
}

bool ThreadLog::runs(std::uint32_t number) const {
    const ThreadRecord* const it = record(number);
    if (it == nullptr) return true;
    const int before = errno;
    const bool gone = syscall(SYS_tgkill, file_.header().pid, it->os_id, 0) != 0 && errno == ESRCH;
    errno = before;
    return !gone;
}

} // namespace cachealloc
