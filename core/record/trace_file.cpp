#include "core/record/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cachealloc {

namespace {

constexpr std::uint64_t kPage = 4096;
/// Programs expect the lowest free descriptor from open(), and some close all the low ones.
constexpr int kFirstDescriptor = 512;

constexpr std::uint64_t pages(std::uint64_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

/// Beyond it the kernel would end the process with SIGXFSZ.
bool within_file_limit(std::uint64_t bytes) {
    rlimit limit{};
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

/// Holds all signals off: a file system ends an allocation with EINTR and takes it back, so that
/// under a timer of 200 us a step of 4 MiB would never succeed.
class SignalsHeld {
  public:
    SignalsHeld() {
        sigset_t all;
        sigfillset(&all);
        held_ = pthread_sigmask(SIG_SETMASK, &all, &before_) == 0;
    }
    ~SignalsHeld() {
        if (held_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;

  private:
    sigset_t before_;
    bool held_;
};

} // namespace

int TraceFile::create(const char* path, std::span<const SectionPlan> plans) {
    if (plans.size() > trace::kMaxSections) return EINVAL;
    if (const int error = set_path(path); error != 0) return error;
    file_ = open(path_, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file_ < 0) return errno;
    if (const int high = fcntl(file_, F_DUPFD_CLOEXEC, kFirstDescriptor); high >= 0) {
        close(file_);
        file_ = high;
    }
    struct stat status {};
    int error = fstat(file_, &status) == 0 ? 0 : errno;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    if (error == 0) error = lay_out(plans);
    if (error == 0) error = map();
    if (error != 0) {
        give_up();
        return error;
    }
    describe(plans);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        SectionSpace& space = spaces_[i];
        space.section = &header_->sections[i];
        space.data = reinterpret_cast<std::byte*>(header_) + offsets_[i];
        space.step = plans[i].step;
        space.ready_.store(std::min(pages(plans[i].step), pages(plans[i].length)),
                           std::memory_order_relaxed);
        if (plans[i].step == 0)
            space.ready_.store(pages(plans[i].length), std::memory_order_relaxed);
    }
    return 0;
}

/// The program may change its directory before the name is taken away.
int TraceFile::set_path(const char* path) {
    std::size_t used = 0;
    if (path[0] != '/') {
        if (getcwd(path_, sizeof path_) == nullptr) return errno;
        used = std::strlen(path_);
        path_[used++] = '/';
    }
    const std::size_t length = std::strlen(path);
    if (used + length >= sizeof path_) return ENAMETOOLONG;
    std::memcpy(path_ + used, path, length + 1);
    return 0;
}

/// Sets the file's size, and gives each section the space that it needs at once.
int TraceFile::lay_out(std::span<const SectionPlan> plans) {
    bytes_ = trace::kHeaderBytes;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        offsets_[i] = bytes_;
        bytes_ += pages(plans[i].length);
    }
    if (!within_file_limit(bytes_)) return EFBIG;
    const SignalsHeld held;
    if (ftruncate(file_, static_cast<off_t>(bytes_)) != 0) return errno;
    int error = allocate(0, trace::kHeaderBytes);
    for (std::size_t i = 0; i < plans.size() && error == 0; ++i) {
        const std::uint64_t length = pages(plans[i].length);
        const std::uint64_t first =
            plans[i].step == 0 ? length : std::min(length, pages(plans[i].step));
        if (first != 0) error = allocate(offsets_[i], first);
    }
    return error;
}

int TraceFile::map() {
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) return errno;
    // Core dumps need no second copy of what the file holds.
    madvise(memory, bytes_, MADV_DONTDUMP);
    header_ = static_cast<trace::Header*>(memory);
    return 0;
}

void TraceFile::describe(std::span<const SectionPlan> plans) const {
    trace::Header& header = *header_;
    std::memcpy(header.magic, trace::kMagic, sizeof header.magic);
    header.byte_order = trace::kByteOrder;
    header.major = trace::kMajor;
    header.minor = trace::kMinor;
    header.header_bytes = trace::kHeaderBytes;
    header.section_count = static_cast<std::uint32_t>(plans.size());
    header.file_bytes = bytes_;
    header.pid = static_cast<std::uint32_t>(getpid());
    for (std::size_t i = 0; i < plans.size(); ++i) {
        trace::Section& section = header.sections[i];
        section.type = plans[i].type;
        section.stride = plans[i].stride;
        section.offset = offsets_[i];
        section.length = pages(plans[i].length);
        section.used.store(plans[i].used, std::memory_order_relaxed);
    }
}

/// Where the file system cannot do it, glibc writes a byte to each block; nobody else writes there
/// yet, so that no content is lost to that.
int TraceFile::allocate(std::uint64_t offset, std::uint64_t length) const {
    if (!within_file_limit(offset + length)) return EFBIG;
    return posix_fallocate(file_, static_cast<off_t>(offset), static_cast<off_t>(length));
}

/// A program that closes every descriptor (daemons do) may have opened its own under our number.
bool TraceFile::still_ours() const {
    struct stat status {};
    return fstat(file_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

void TraceFile::give_up() {
    if (header_ != nullptr) munmap(header_, bytes_);
    header_ = nullptr;
    unlink(path_);
    close(file_);
    file_ = -1;
}

bool TraceFile::grow(SectionSpace& space, std::uint64_t bytes) {
    if (bytes <= space.ready()) return true;
    if (bytes > space.capacity() || space.capped()) return false;
    if (space.growing_.exchange(true, std::memory_order_acquire)) {
        // Another thread does it: a few system calls. Without its room a stack would be dropped, or
        // the ring come round early.
        for (int i = 0; i < kGrowthYields && space.growing_.load(std::memory_order_acquire); ++i)
            sched_yield();
        return bytes <= space.ready();
    }
    const std::uint64_t ready = space.ready();
    bool grown = bytes <= ready;
    if (!grown) {
        const std::uint64_t steps = (bytes - ready + space.step - 1) / space.step;
        const std::uint64_t end = std::min(pages(ready + steps * space.step), space.capacity());
        const SignalsHeld held;
        grown = still_ours() && allocate(space.section->offset + ready, end - ready) == 0;
        if (grown) {
            space.ready_.store(end, std::memory_order_release);
        } else {
            space.capped_.store(true, std::memory_order_relaxed);
        }
    }
    space.growing_.store(false, std::memory_order_release);
    return grown;
}

void TraceFile::remove_name() const {
    struct stat status {};
    if (lstat(path_, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_) return;
    unlink(path_);
}

} // namespace cachealloc
