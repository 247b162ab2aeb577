#include "tests/tools/exports/scene.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace cachealloc::tests {
namespace {

using trace::AddressSpace;
using trace::MemoryType;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kRounding = 512;

constexpr MemoryType kOthers[] = {
    MemoryType::device,        MemoryType::stream_ordered, MemoryType::managed,
    MemoryType::pinned,        MemoryType::array,          MemoryType::pitched,
    MemoryType::explicit_pool, MemoryType::physical,       MemoryType::mapping};

template <class Map>
auto any_of(Map& map, std::uint64_t random) {
    return std::next(map.begin(), static_cast<std::ptrdiff_t>(random % map.size()));
}

} // namespace

Scene::Scene(std::uint64_t seed) : random_(seed) {
    builder_.thread("main", 100);
    builder_.thread("worker", 101);
    builder_.thread("odd \x01\xff\"name", 102);
    builder_.device(0, "first", 80 * 1024 * kMiB);
    builder_.device(2, "third", 80 * 1024 * kMiB);
    builder_.setting("exe", "/opt/app/bin/a.out");
    builder_.setting("conf", "max_split_size_mb:128");
    builder_.setting("options", "max_split_size_mb:128");
    builder_.setting("odd", "\xff\xfe text");
    builder_.module("/opt/app/bin/a.out", 0x400000, 0x400000, 0x500000, "a-build-id");
    builder_.module("/opt/app/lib/libx;y.so", 0x10000000, 0x10000000, 0x10100000, "b-build-id");
    for (int count = 0; count < 40; ++count) {
        std::vector<trace::Frame> frames;
        for (std::uint64_t depth = 1 + below(12); depth > 0; --depth) {
            frames.push_back(below(8) == 0 ? 0x10000000 + below(64) : 0x400000 + below(64));
        }
        stacks_.push_back(builder_.stack(frames, below(5) == 0));
    }
}

EventDetails Scene::details(std::uint8_t device) {
    EventDetails details;
    details.stack = below(10) == 0 ? 0 : stacks_[below(stacks_.size())];
    details.thread = static_cast<std::uint32_t>(1 + below(3));
    details.stream = below(3) == 0 ? 0 : 0x1000 + below(3) * 0x80;
    details.device = device;
    details.pool = static_cast<std::uint8_t>(below(2));
    return details;
}

void Scene::counted(std::uint8_t device, std::uint64_t bytes) {
    bytes_[device] += bytes;
    std::uint64_t all = 0;
    for (const auto& [ordinal, live] : bytes_) {
        all += live;
    }
    peak_ = std::max(peak_, all);
}

std::optional<std::uint64_t> Scene::gap(std::uint64_t segment, std::uint64_t bytes) const {
    std::uint64_t at = segment;
    std::map<std::uint64_t, std::uint64_t> taken;
    for (const auto& [key, memory] : live_) {
        if (memory.segment == segment) {
            taken[memory.address] = memory.bytes;
        }
    }
    for (const auto& [address, memory] : pending_) {
        if (memory.segment == segment) {
            taken[address] = memory.bytes;
        }
    }
    for (const auto& [address, size] : taken) {
        if (address - at >= bytes) {
            return at;
        }
        at = address + size;
    }
    if (segment + segments_.at(segment).size - at >= bytes) {
        return at;
    }
    return std::nullopt;
}

void Scene::grow(std::uint8_t device) {
    const bool expandable = below(4) == 0;
    const std::uint64_t size = 2 * kMiB * (1 + below(8));
    EventDetails event = details(device);
    event.pool = 0;
    Segment segment{size, expandable, device};
    if (expandable) {
        event.flags = trace::kLarge;
        // In two parts that are one segment.
        builder_.event(trace::EventKind::segment_map, next_segment_ + kMiB, size - kMiB, event);
        builder_.event(trace::EventKind::segment_map, next_segment_, kMiB, event);
    } else {
        builder_.segment_alloc(next_segment_, size, below(2) == 0, event);
    }
    segments_[next_segment_] = segment;
    // Some lie side by side.
    next_segment_ += size + (below(2) == 0 ? 0 : 64 * kMiB);
}

void Scene::shrink() {
    for (auto segment = segments_.begin(); segment != segments_.end(); ++segment) {
        if (gap(segment->first, segment->second.size) == segment->first) {
            EventDetails event = details(segment->second.device);
            if (segment->second.expandable) {
                event.flags = trace::kLarge;
                builder_.event(trace::EventKind::segment_unmap, segment->first, kMiB, event);
                builder_.event(trace::EventKind::segment_unmap, segment->first + kMiB,
                               segment->second.size - kMiB, event);
            } else {
                builder_.segment_free(segment->first, event);
            }
            segments_.erase(segment);
            return;
        }
    }
}

void Scene::allocate_pooled(std::uint8_t device) {
    const std::uint64_t size = 1 + below(below(4) == 0 ? 2 * kMiB : 8192);
    EventDetails event = details(device);
    event.extra = static_cast<std::uint32_t>((kRounding - size % kRounding) % kRounding);
    event.call = trace::CallName::mem_alloc;
    for (const auto& [address, segment] : segments_) {
        if (segment.device != device) {
            continue;
        }
        if (const auto place = gap(address, size + event.extra)) {
            builder_.alloc(*place, size, event);
            live_[{0, *place}] = {*place, size, size + event.extra, address, event};
            counted(device, size);
            return;
        }
    }
    builder_.out_of_memory(size, below(kMiB), event);
    grow(device);
}

void Scene::allocate_other(std::uint8_t device) {
    EventDetails event = details(device);
    event.memory = kOthers[below(std::size(kOthers))];
    event.call = trace::CallName::mem_alloc_managed;
    const std::uint64_t size = 1 + below(4 * kMiB);
    const AddressSpace space = trace::space_of(event.memory);
    const bool handle = space != AddressSpace::device;
    // Handles are used again, and may look like addresses that are in use.
    const std::uint64_t address = handle ? 0x7f0000000000 + below(16) * 8 : next_other_;
    if (live_.contains({static_cast<int>(space), address})) {
        return;
    }
    next_other_ += handle ? 0 : size + 4096;
    builder_.alloc(address, size, event);
    live_[{static_cast<int>(space), address}] = {address, size, size, 0, event};
    if (trace::on_device(event.memory)) {
        counted(device, size);
    }
}

void Scene::free_one() {
    if (live_.empty()) {
        return;
    }
    const auto chosen = any_of(live_, random_());
    const Memory memory = chosen->second;
    EventDetails event = memory.details;
    event.thread = static_cast<std::uint32_t>(1 + below(3));
    event.free_stack = below(3) == 0 ? stacks_[below(stacks_.size())] : 0;
    event.call = trace::CallName::mem_free;
    event.stack = 0;
    const bool pending = memory.details.memory == MemoryType::pooled && below(2) == 0;
    builder_.free(memory.address, event, pending);
    if (pending) {
        pending_[memory.address] = memory;
    }
    if (trace::on_device(memory.details.memory)) {
        bytes_[memory.details.device] -= memory.size;
    }
    live_.erase(chosen);
}

void Scene::complete_one() {
    if (pending_.empty()) {
        return;
    }
    const auto chosen = any_of(pending_, random_());
    EventDetails event = chosen->second.details;
    builder_.free_completed(chosen->first, chosen->second.size, event);
    pending_.erase(chosen);
}

void Scene::step() {
    const std::uint8_t device = below(3) == 0 ? 2 : 0;
    switch (below(20)) {
    case 0:
        grow(device);
        break;
    case 1:
        shrink();
        break;
    case 2:
    case 3:
        allocate_other(device);
        break;
    case 4:
        builder_.event(trace::EventKind::mark, below(1000), below(1000), details(device));
        break;
    case 5:
    case 6:
    case 7:
        complete_one();
        break;
    default:
        if (below(20) < 9) {
            allocate_pooled(device);
        } else {
            free_one();
        }
    }
}

void Scene::nonsense() {
    EventDetails event = details(static_cast<std::uint8_t>(below(4)));
    event.memory = static_cast<MemoryType>(below(trace::kMemoryTypes));
    event.flags = static_cast<std::uint8_t>(random_());
    event.stack = static_cast<std::uint32_t>(below(60));
    event.thread = static_cast<std::uint32_t>(below(5));
    event.extra = static_cast<std::uint32_t>(below(4) == 0 ? random_() : below(600));
    event.stream = below(2) == 0 ? random_() : 0;
    std::uint64_t address = 0x7f0000000000 + below(64) * kMiB / 4;
    if (below(20) == 0) {
        address = random_();
    }
    const std::uint64_t size = below(20) == 0 ? random_() >> below(64) : below(3 * kMiB);
    builder_.event(static_cast<trace::EventKind>(1 + below(10)), address, size, event);
}

std::string Scene::expectation() const {
    std::ostringstream text;
    text << R"({"peak":)" << peak_ << R"(,"live":[)";
    const char* separator = "";
    for (const auto& [key, memory] : live_) {
        if (trace::on_device(memory.details.memory)) {
            text << separator << R"({"address":)" << memory.address << R"(,"size":)" << memory.size
                 << R"(,"bytes":)" << memory.bytes << R"(,"device":)" << int{memory.details.device}
                 << R"(,"space":)" << key.first << R"(,"memory":")"
                 << trace::memory_name(memory.details.memory) << R"("})";
            separator = ",";
        }
    }
    text << R"(],"pending":[)";
    separator = "";
    for (const auto& [address, memory] : pending_) {
        text << separator << address;
        separator = ",";
    }
    text << R"(],"segments":[)";
    separator = "";
    for (const auto& [address, segment] : segments_) {
        text << separator << "[" << int{segment.device} << "," << address << "," << segment.size
             << "]";
        separator = ",";
    }
    text << "]}";
    return text.str();
}

} // namespace cachealloc::tests
