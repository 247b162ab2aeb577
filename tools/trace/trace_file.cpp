#include "tools/trace/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cachealloc::tools {

namespace {

using trace::SectionType;

/// A sparse file can claim sections larger than any memory, at no cost to whoever made it.
constexpr std::uint64_t kMostLoaded = std::uint64_t{2} << 30;

struct SectionKind {
    SectionType type;
    const char* name;
    std::uint32_t least_stride; ///< newer writers may add fields behind
};
constexpr SectionKind kSectionKinds[] = {
    {SectionType::events, "events", trace::kChunkBytes},
    {SectionType::live, "live", sizeof(trace::EventRecord)},
    {SectionType::stacks, "stacks", sizeof(trace::StackSlot)},
    {SectionType::frames, "frames", sizeof(trace::Frame)},
    {SectionType::modules, "modules", sizeof(trace::ModuleRecord)},
    {SectionType::threads, "threads", sizeof(trace::ThreadRecord)},
    {SectionType::devices, "devices", sizeof(trace::DeviceCounters)},
    {SectionType::statistics, "statistics", sizeof(trace::StatisticRecord)},
    {SectionType::settings, "settings", 1},
};

const SectionKind* kind_of(SectionType type) {
    const auto* found = std::ranges::find(kSectionKinds, type, &SectionKind::type);
    return found == std::end(kSectionKinds) ? nullptr : found;
}

/// What to do about a file that open() refuses.
const char* hint(int error) {
    switch (error) {
    case ENOENT:
        return "is the name right? `cachealloc report` without a name takes the newest recording";
    case EACCES:
        return "read it as the user who ran the program";
    default:
        return "copy it to a local disk and try again";
    }
}

TraceCounters plain(const trace::Counters& from) {
    const auto value = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    return {.next_claim = value(from.next_claim),
            .overwritten = value(from.overwritten),
            .lost = value(from.lost),
            .nested = value(from.nested),
            .stacks_dropped = value(from.stacks_dropped),
            .stacks_walked = value(from.stacks_walked),
            .stacks_unwound = value(from.stacks_unwound),
            .stacks_failed = value(from.stacks_failed),
            .stacks_differed = value(from.stacks_differed),
            .live_dropped = value(from.live_dropped),
            .unknown_frees = value(from.unknown_frees),
            .live_records = value(from.live_records)};
}

} // namespace

TraceFile::TraceFile(std::string path) : path_(std::move(path)) {
    // Without waiting: a named pipe would block the tool for ever.
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor_ < 0) {
        const int error = errno;
        fail(fmt::format("cannot be opened ({}): {}", std::strerror(error), hint(error)));
    }
    open_header();
}

TraceFile::TraceFile(int descriptor, std::string name)
    : path_(std::move(name)), descriptor_(descriptor) {
    open_header();
}

TraceFile::~TraceFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void TraceFile::open_header() {
    try {
        read_header();
    } catch (...) {
        ::close(
            std::exchange(descriptor_, -1)); // the destructor of a failed constructor is not run
        throw;
    }
}

void TraceFile::fail(const std::string& what) const {
    throw TraceError(fmt::format("{}: {}", path_, what));
}

void TraceFile::read_header() {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0)
        fail(fmt::format("cannot be examined ({})", std::strerror(errno)));
    if (S_ISDIR(info.st_mode)) fail("is a directory: name a .trace file in it");
    if (!S_ISREG(info.st_mode)) fail("is not a regular file: name a .trace file");
    size_ = static_cast<std::uint64_t>(info.st_size);
    if (size_ == 0) fail("is empty: nothing was recorded, or it was cut; record again");
    // The copy, in which nothing changes any more. While the process runs, the pair of the latest
    // moment is odd or changes now and then; a few more looks find it at rest.
    alignas(trace::Header) std::byte bytes[sizeof(trace::Header)]{};
    const auto& copy = *reinterpret_cast<const trace::Header*>(bytes);
    const std::size_t got = read(0, bytes, sizeof(bytes));
    if (got < sizeof(trace::kMagic) ||
        std::memcmp(copy.magic, trace::kMagic, sizeof(trace::kMagic)) != 0)
        fail("is not a recording of cachealloc: name a file written by it (*.trace)");
    if (got < sizeof(bytes))
        fail(fmt::format("is cut within its first {} bytes: nothing can be read, record again",
                         trace::kHeaderBytes));
    if (copy.byte_order != trace::kByteOrder)
        fail("was written with another byte order: read it on a machine like the one it is from");
    if (copy.major != trace::kMajor)
        fail(fmt::format("has format version {}.{}, this tool reads version {}: use the cachealloc "
                         "that recorded it",
                         copy.major, copy.minor, trace::kMajor));
    if (copy.header_bytes != trace::kHeaderBytes || copy.section_count > trace::kMaxSections)
        fail("has a damaged header: nothing can be read, record again");
    header_ = {.major = copy.major,
               .minor = copy.minor,
               .pid = copy.pid,
               .clock = copy.clock,
               .start = copy.start,
               .latest = copy.start,
               .file_bytes = copy.file_bytes,
               .identity = copy.identity,
               .state = static_cast<trace::RunState>(copy.state.load(std::memory_order_relaxed)),
               .seen = copy.seen.load(std::memory_order_relaxed),
               .stack_depth = copy.stack_depth,
               .counters = plain(copy.counters)};
    if (header_.clock != trace::ClockKind::tsc) header_.clock = trace::ClockKind::nanoseconds;
    read_sections(copy);

    constexpr int kLooks = 64;
    std::uint32_t before = copy.latest_sequence.load(std::memory_order_relaxed);
    for (int look = 0; look < kLooks; ++look) {
        const trace::ClockPair pair{copy.latest_ticks.load(std::memory_order_relaxed),
                                    copy.latest_realtime_ns.load(std::memory_order_relaxed)};
        if (read(0, bytes, sizeof(bytes)) != sizeof(bytes)) break;
        const std::uint32_t after = copy.latest_sequence.load(std::memory_order_relaxed);
        if (before == after && before % 2 == 0) {
            if (pair.ticks > header_.start.ticks && pair.realtime_ns != 0) header_.latest = pair;
            return;
        }
        before = after;
    }
    notes_.emplace_back("the latest moment was being written when the process died");
}

void TraceFile::read_sections(const trace::Header& copy) {
    if (header_.file_bytes > size_)
        notes_.push_back(
            fmt::format("the file is cut: {} of {} bytes are there", size_, header_.file_bytes));
    for (std::uint32_t i = 0; i < copy.section_count; ++i)
        add_section(copy.sections[i]);
    for (const SectionKind& kind : kSectionKinds) {
        if (section(kind.type).type == SectionType::none)
            notes_.push_back(fmt::format("there is no section {}", kind.name));
    }
}

void TraceFile::add_section(const trace::Section& raw) {
    if (raw.type == SectionType::none) return;
    const SectionKind* const kind = kind_of(raw.type);
    if (kind == nullptr) {
        notes_.push_back(fmt::format("section type {} is not known and left out",
                                     static_cast<std::uint32_t>(raw.type)));
        return;
    }
    if (section(raw.type).type != SectionType::none) {
        notes_.push_back(fmt::format("a second section {} is left out", kind->name));
        return;
    }
    const bool fits = raw.stride >= kind->least_stride && raw.stride <= (1U << 20) &&
                      (raw.stride == 1 || raw.stride % 8 == 0) &&
                      raw.offset >= trace::kHeaderBytes && raw.offset % 4096 == 0 &&
                      (raw.type != SectionType::events || raw.stride == trace::kChunkBytes);
    TraceSection taken{.type = raw.type, .stride = raw.stride, .offset = raw.offset};
    if (!fits) {
        notes_.push_back(fmt::format("the description of section {} is damaged", kind->name));
        taken.stride = kind->least_stride;
    } else {
        const std::uint64_t content =
            std::min(raw.used.load(std::memory_order_relaxed), raw.length) / raw.stride *
            raw.stride;
        const std::uint64_t there = raw.offset < size_ ? size_ - raw.offset : 0;
        taken.bytes = std::min(content, there / raw.stride * raw.stride);
        taken.missing = content - taken.bytes;
        if (taken.missing != 0)
            notes_.push_back(fmt::format("section {} is cut: {} of {} bytes are there", kind->name,
                                         taken.bytes, content));
    }
    sections_.push_back(taken);
}

const TraceSection& TraceFile::section(SectionType type) const {
    static const TraceSection kNone;
    const auto found = std::ranges::find(sections_, type, &TraceSection::type);
    return found == sections_.end() ? kNone : *found;
}

std::size_t TraceFile::read(std::uint64_t offset, void* to, std::size_t bytes) const {
    std::size_t done = 0;
    while (done < bytes && offset + done >= offset && offset + done < (std::uint64_t{1} << 62)) {
        const ssize_t got = ::pread(descriptor_, static_cast<std::byte*>(to) + done, bytes - done,
                                    static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

std::vector<std::byte> TraceFile::load(SectionType type) const {
    const TraceSection& from = section(type);
    if (from.bytes > kMostLoaded)
        fail(fmt::format("section {} has {} bytes, more than any recording needs: the file is "
                         "damaged, record again",
                         section_name(type), from.bytes));
    std::vector<std::byte> content(from.bytes);
    content.resize(read(from.offset, content.data(), content.size()));
    if (from.stride != 0) content.resize(content.size() / from.stride * from.stride);
    return content;
}

const char* section_name(SectionType type) {
    const SectionKind* const kind = kind_of(type);
    return kind == nullptr ? "unknown" : kind->name;
}

} // namespace cachealloc::tools
