#pragma once

#include "core/record/trace_format.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cachealloc {

/// What to set aside for a section, in bytes.
struct SectionPlan {
    trace::SectionType type = trace::SectionType::none;
    std::uint32_t stride = 1;
    std::uint64_t length = 0; ///< rounded up to pages
    std::uint64_t step = 0;   ///< allocated at once when it grows; 0: all of it at the start
    std::uint64_t used = 0;   ///< Section::used at the start
};

/// A section's memory and how much of it may be written.
///
/// Invariant: what lies below ready() has its space on the disk, so that writing there never meets
/// a full one (SIGBUS in the program otherwise).
class SectionSpace {
  public:
    trace::Section* section = nullptr;
    std::byte* data = nullptr;
    std::uint64_t step = 0;

    std::uint64_t capacity() const { return section->length; }
    std::uint64_t ready() const { return ready_.load(std::memory_order_acquire); }
    /// No space is left, or not within the process's limits: it will not grow any more.
    bool capped() const { return capped_.load(std::memory_order_relaxed); }

  private:
    friend class TraceFile;
    std::atomic<std::uint64_t> ready_{0};
    std::atomic<bool> capped_{false};
    std::atomic<bool> growing_{false};
};

/// The file of a recording: made, laid out, mapped shared, and given space in steps.
///
/// Invariant: an existing file is never opened, and only the file that was made here is given space
/// or removed, whatever the program did with its descriptors and names since.
class TraceFile {
  public:
    /// How often a caller yields to a thread that is making space.
    static constexpr int kGrowthYields = 1000;

    TraceFile() = default;
    ~TraceFile() = default; // the file lives as long as the process, mapped
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;

    /// Makes `path` with these sections (at most kMaxSections), all zero but for magic, version,
    /// sizes, pid and the section table; the state is `starting`. 0, or an errno; then nothing is
    /// left behind, and it may be tried again elsewhere.
    int create(const char* path, std::span<const SectionPlan> plans);

    trace::Header& header() const { return *header_; }
    /// The space of section `index`, in the order of the plans.
    SectionSpace& space(std::size_t index) { return spaces_[index]; }
    /// As given to create(), made absolute; "" before.
    const char* path() const { return path_; }

    /// Gives `space` at least `bytes` and at best its next steps. False where there is no room, or
    /// another thread is at it for long: then the caller does without for now. Makes system calls,
    /// takes no lock. Signals are held off meanwhile.
    bool grow(SectionSpace& space, std::uint64_t bytes);

    /// Takes the file's name away if it still names this file. The mapping stays.
    void remove_name() const;

    static constexpr std::size_t kMaxPath = 4096;

  private:
    int set_path(const char* path);
    int lay_out(std::span<const SectionPlan> plans);
    int map();
    void describe(std::span<const SectionPlan> plans) const;
    int allocate(std::uint64_t offset, std::uint64_t length) const;
    bool still_ours() const;
    void give_up();

    trace::Header* header_ = nullptr;
    std::uint64_t bytes_ = 0;
    int file_ = -1;
    std::uint64_t device_ = 0; ///< with inode_: what the descriptor must still be
    std::uint64_t inode_ = 0;
    std::uint64_t offsets_[trace::kMaxSections]{};
    SectionSpace spaces_[trace::kMaxSections];
    char path_[kMaxPath]{};
};

} // namespace cachealloc
