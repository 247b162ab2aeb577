// Opens the recording of one process and hands out its parts.
//
// Invariant: nothing in the file is trusted. Each byte is copied once and only the copy is checked
// and used, for the process may still be writing; every offset and length is held against the
// file's real size. The file is read, never mapped: a mapped file that another process cuts short
// kills its reader with SIGBUS.
#pragma once

#include "core/record/trace_format.h"
#include "tools/trace/trace_error.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cachealloc::tools {

/// The Counters of the header, as plain numbers.
struct TraceCounters {
    std::uint64_t next_claim = 0;
    std::uint64_t overwritten = 0;
    std::uint64_t lost = 0;
    std::uint64_t nested = 0;
    std::uint64_t stacks_dropped = 0;
    std::uint64_t stacks_walked = 0;
    std::uint64_t stacks_unwound = 0;
    std::uint64_t stacks_failed = 0;
    std::uint64_t stacks_differed = 0;
    std::uint64_t live_dropped = 0;
    std::uint64_t unknown_frees = 0;
    std::uint64_t live_records = 0;
};

/// The header's content, copied.
struct TraceHeader {
    std::uint16_t major = 0;
    std::uint16_t minor = 0;
    std::uint32_t pid = 0;
    trace::ClockKind clock = trace::ClockKind::nanoseconds;
    trace::ClockPair start{};
    trace::ClockPair latest{}; ///< equals `start` where no later moment could be read
    std::uint64_t file_bytes = 0;
    std::uint64_t identity = 0;
    trace::RunState state = trace::RunState::starting;
    std::uint32_t seen = 0; ///< trace::Seen bits
    std::uint32_t stack_depth = 0;
    TraceCounters counters;
};

/// A section as far as it can be read.
struct TraceSection {
    trace::SectionType type = trace::SectionType::none;
    std::uint32_t stride = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;   ///< readable, a multiple of `stride`
    std::uint64_t missing = 0; ///< bytes that may hold content and lie beyond the file's end

    [[nodiscard]] std::uint64_t elements() const { return stride == 0 ? 0 : bytes / stride; }
};

class TraceFile {
  public:
    /// Throws TraceError if it is not a recording that can be read.
    explicit TraceFile(std::string path);
    /// Takes over `descriptor`; `name` is for messages.
    TraceFile(int descriptor, std::string name);
    ~TraceFile();
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const TraceHeader& header() const { return header_; }
    /// The file's bytes when it was opened.
    [[nodiscard]] std::uint64_t size() const { return size_; }
    /// A section, with no bytes if the file has none of that type.
    [[nodiscard]] const TraceSection& section(trace::SectionType type) const;
    [[nodiscard]] const std::vector<TraceSection>& sections() const { return sections_; }
    /// What is missing or wrong about the header and the sections, a line each.
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

    /// Copies up to `bytes` bytes from `offset`; returns how many there were.
    std::size_t read(std::uint64_t offset, void* to, std::size_t bytes) const;
    /// The readable content of a section. Throws TraceError if that is absurdly large.
    [[nodiscard]] std::vector<std::byte> load(trace::SectionType type) const;

  private:
    void open_header();
    void read_header();
    void read_sections(const trace::Header& copy);
    void add_section(const trace::Section& raw);
    [[noreturn]] void fail(const std::string& what) const;

    std::string path_;
    int descriptor_ = -1;
    std::uint64_t size_ = 0;
    TraceHeader header_;
    std::vector<TraceSection> sections_;
    std::vector<std::string> notes_;
};

/// "events", "live" ..; "unknown" for what is not in SectionType.
const char* section_name(trace::SectionType type);

} // namespace cachealloc::tools
