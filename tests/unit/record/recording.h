// Helpers of the recorder's tests: a folder for files, a recorder in a process of its own (there is
// one recorder in a process), and what its file holds.
#pragma once

#include "core/record/recorder.h"
#include "core/record/trace_format.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cachealloc::test {

/// A new folder that goes away with the object.
class Folder {
  public:
    explicit Folder(const std::filesystem::path& under = std::filesystem::temp_directory_path()) {
        std::string name = (under / "cachealloc-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) std::abort();
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

/// A plain copy of an EventRecord.
struct Event {
    std::uint64_t sequence, time, address, size, stream;
    std::uint32_t stack, thread;
    trace::EventKind kind;
    trace::MemoryType memory;
    std::uint8_t device, flags;
    std::uint32_t extra, free_stack;
    std::uint8_t pool;
    trace::CallName call;

    explicit Event(const trace::EventRecord& record)
        : sequence(record.sequence), time(record.time), address(record.address), size(record.size),
          stream(record.stream), stack(record.stack), thread(record.thread), kind(record.kind),
          memory(record.memory), device(record.device), flags(record.flags), extra(record.extra),
          free_stack(record.free_stack), pool(record.pool), call(record.call) {}
};

/// A recording's file, mapped to be read.
class View {
  public:
    explicit View(const std::string& path) {
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat status {};
        if (file < 0 || fstat(file, &status) != 0) return;
        bytes_ = static_cast<std::size_t>(status.st_size);
        void* const memory = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (memory != MAP_FAILED) data_ = static_cast<const std::byte*>(memory);
    }
    ~View() {
        if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), bytes_);
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    bool good() const { return data_ != nullptr; }
    const trace::Header& header() const { return *reinterpret_cast<const trace::Header*>(data_); }
    const trace::Counters& counters() const { return header().counters; }
    trace::RunState state() const { return static_cast<trace::RunState>(header().state.load()); }

    const trace::Section& section(trace::SectionType type) const {
        const auto& sections = header().sections;
        const auto* const found =
            std::find_if(sections, sections + header().section_count,
                         [&](const trace::Section& section) { return section.type == type; });
        return *found;
    }

    /// The elements of a section that may hold content.
    template <typename T>
    std::span<const T> elements(trace::SectionType type) const {
        const trace::Section& it = section(type);
        return {reinterpret_cast<const T*>(data_ + it.offset), it.used.load() / sizeof(T)};
    }

    /// The events that a reader finds, in the order of their times.
    std::vector<Event> events() const {
        std::vector<Event> found;
        for (const trace::Chunk& chunk : elements<trace::Chunk>(trace::SectionType::events)) {
            for (std::uint32_t i = 0; i < trace::kChunkRecords; ++i) {
                const trace::EventRecord& record = chunk.records[i];
                if (chunk.header.claim == 0 ||
                    record.sequence != trace::event_sequence(chunk.header.claim, i))
                    break;
                if (record.check != trace::check_word(record)) std::abort();
                found.emplace_back(record);
            }
        }
        std::ranges::stable_sort(found, {}, &Event::time);
        return found;
    }

    std::vector<Event> live() const {
        std::vector<Event> found;
        for (const auto& record : elements<trace::EventRecord>(trace::SectionType::live)) {
            if (record.sequence != 0) found.emplace_back(record);
        }
        std::ranges::sort(found, {}, &Event::address);
        return found;
    }

    std::span<const trace::Frame> frames(std::uint32_t stack) const {
        const auto slots = elements<trace::StackSlot>(trace::SectionType::stacks);
        if (stack == 0 || stack > slots.size() || slots[stack - 1].first == 0) return {};
        const trace::StackSlot& slot = slots[stack - 1];
        return elements<trace::Frame>(trace::SectionType::frames)
            .subspan(slot.first - 1, slot.frames);
    }

    const trace::DeviceCounters& device(std::uint32_t ordinal) const {
        return elements<trace::DeviceCounters>(trace::SectionType::devices)[ordinal];
    }

  private:
    const std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Runs `work()` in a child; its exit status, or minus the signal that ended it.
template <typename Work>
int in_child(Work work) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Runs `work(recorder)` in a child that records to `path`; what in_child() says, 99 where the
/// recorder did not start.
template <typename Work>
int record_in_child(const std::string& path, RecorderSettings settings, Work work) {
    return in_child([&] {
        const char* const paths[] = {path.c_str()};
        settings.paths = paths;
        settings.path_count = 1;
        int error = 0;
        std::size_t used = 0;
        Recorder* const recorder = Recorder::start(settings, error, used);
        return recorder == nullptr ? 99 : work(*recorder);
    });
}

/// Gives every thread the frames that it was told to give next.
class FakeStacks : public StackSource {
  public:
    std::vector<trace::Frame> frames{0x1000, 0x2000, 0x3000};
    std::size_t capture(trace::Frame* to, std::size_t room, bool& cut) override {
        const std::size_t count = std::min(room, frames.size());
        std::copy_n(frames.begin(), count, to);
        cut = count < frames.size();
        return count;
    }
};

inline MemoryEvent memory(std::uint64_t address, std::uint64_t size,
                          trace::MemoryType type = trace::MemoryType::pooled) {
    MemoryEvent event;
    event.address = address;
    event.size = size;
    event.memory = type;
    return event;
}

} // namespace cachealloc::test
