// The log that RMM's logging_resource_adaptor writes, which its replay benchmark reads.
#include "tools/exports/exporter.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <vector>

namespace cachealloc::tools {
namespace {

using trace::AddressSpace;
using trace::EventKind;

/// Memory that has an address on a device.
bool has_pointer(trace::MemoryType memory) {
    return trace::on_device(memory) && trace::space_of(memory) == AddressSpace::device;
}

/// "HH:MM:SS.uuuuuu" in local time, as spdlog writes it.
class TimeOfDay {
  public:
    std::string_view of(std::uint64_t epoch_ns) {
        const auto second = static_cast<std::time_t>(epoch_ns / 1'000'000'000);
        if (second != second_) {
            second_ = second;
            std::tm parts = {};
            localtime_r(&second, &parts);
            std::snprintf(text_.data(), text_.size(), "%02d:%02d:%02d.", parts.tm_hour,
                          parts.tm_min, parts.tm_sec);
        }
        auto microseconds = static_cast<unsigned>(epoch_ns / 1000 % 1'000'000);
        for (std::size_t at = kLength; at-- > kLength - 6; microseconds /= 10) {
            text_[at] = static_cast<char>('0' + microseconds % 10);
        }
        return {text_.data(), kLength};
    }

  private:
    static constexpr std::size_t kLength = 15;
    std::time_t second_ = -1;
    std::array<char, 64> text_{};
};

/// Follows the memory that has pointers, so that allocations and frees alternate whatever the
/// recording lost.
class CsvVisitor : public HistoryVisitor {
  public:
    explicit CsvVisitor(ExportJob& job) : job_(job) {
        job_.output.write("Thread,Time,Action,Pointer,Size,Stream\n");
    }

    void on_start(const State& state) override {
        last_.time = job_.history.first_time();
        state.live().for_each([this](const Place& place, const Block& block) {
            if (is_chosen(block)) {
                live_.insert(place, block);
            }
        });
    }

    void on_event(const Event& event, const State& /*state*/, const Block* /*ended*/) override {
        if (done_ || job_.window.behind(event.time)) {
            done_ = true;
            return;
        }
        if (!job_.window.before(event.time)) {
            begin();
        }
        last_ = event;
        const Block block = block_of(event);
        if (event.kind == EventKind::alloc && is_chosen(block)) {
            end(block.place());
            live_.insert(block.place(), block);
            write("allocate", block.address, block.size, block.stream);
        } else if (event.kind == EventKind::free) {
            end(block.place());
        } else if (event.kind == EventKind::out_of_memory && job_.window.has_device(event.device)) {
            write("allocate failure", 0, event.size, 0);
        }
    }

    void on_end(const State& state) override {
        begin();
        std::vector<Place> lost;
        live_.for_each([&](const Place& place, const Block&) {
            if (state.live().find(place) == nullptr) {
                lost.push_back(place);
            }
        });
        for (const Place& place : lost) {
            end(place);
        }
    }

    [[nodiscard]] bool done() const override { return done_; }

    /// From here on rows are written. What is there by now was allocated now, for a replay.
    void begin() {
        if (begun_) {
            return;
        }
        begun_ = true;
        std::vector<Block> blocks;
        live_.for_each([&](const Place&, const Block& block) { blocks.push_back(block); });
        std::ranges::sort(blocks, {}, &Block::address);
        for (const Block& block : blocks) {
            last_.thread = block.thread;
            write("allocate", block.address, block.size, block.stream);
        }
    }

  private:
    [[nodiscard]] bool is_chosen(const Block& block) const {
        return has_pointer(block.memory) && job_.window.has_device(block.device);
    }

    void end(const Place& place) {
        if (const Block* block = live_.find(place)) {
            const Block ended = *block;
            live_.erase(place);
            write("free", ended.address, ended.size, last_.stream);
        }
    }

    void write(std::string_view action, std::uint64_t pointer, std::uint64_t size,
               std::uint64_t stream) {
        if (!begun_) {
            return;
        }
        OutputFile& output = job_.output;
        const Thread* thread = job_.trace.threads.find(last_.thread);
        output.write_number(thread != nullptr ? thread->os_id : last_.thread);
        output.write(',');
        output.write(time_.of(job_.trace.clock.epoch_ns(last_.time)));
        output.write(',');
        output.write(action);
        if (pointer == 0) {
            output.write(",(nil),"); // as %p writes it, which RMM's reader knows
        } else {
            output.write(",0x");
            output.write_number(pointer, 16);
            output.write(',');
        }
        output.write_number(size);
        output.write(",0x");
        output.write_number(stream, 16);
        output.write('\n');
    }

    ExportJob& job_;
    TimeOfDay time_;
    FlatMap<Block> live_;
    Event last_; ///< whose thread and time rows have
    bool begun_ = false;
    bool done_ = false;
};

} // namespace

void export_csv(ExportJob& job) {
    CsvVisitor visitor(job);
    job.history.visit(visitor);
    visitor.begin();
}

} // namespace cachealloc::tools
