#include "tests/tools/trace_builder.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace cachealloc::tests {

namespace {

using trace::AddressSpace;
using trace::EventKind;
using trace::EventRecord;
using trace::MemoryType;
using trace::SectionType;

template <std::size_t Room>
void set_text(char (&to)[Room], std::string_view text) {
    std::memset(to, 0, Room);
    std::copy_n(text.begin(), std::min(text.size(), Room - 1), to);
}

void copy(EventRecord& to, const EventRecord& from) {
    std::memcpy(static_cast<void*>(&to), &from, sizeof(to));
}

void add_to(std::atomic<std::int64_t>& value, std::int64_t amount) {
    value.store(value.load() + amount);
}

std::uint64_t page_up(std::uint64_t bytes) {
    return (bytes + 4095) / 4096 * 4096;
}

} // namespace

TraceBuilder::TraceBuilder() : header_(std::make_unique<trace::Header>()) {
    std::memset(static_cast<void*>(header_.get()), 0, sizeof(trace::Header));
    std::memcpy(header_->magic, trace::kMagic, sizeof(trace::kMagic));
    header_->byte_order = trace::kByteOrder;
    header_->major = trace::kMajor;
    header_->minor = trace::kMinor;
    header_->header_bytes = trace::kHeaderBytes;
    header_->pid = 4242;
    header_->clock = trace::ClockKind::nanoseconds;
    header_->start = {kStart, kEpoch};
    header_->identity = 0x1234567890abcdef;
    header_->state = static_cast<std::uint32_t>(trace::RunState::clean_exit);
    header_->stack_depth = 64;
}

void TraceBuilder::module(std::string_view path, std::uint64_t bias, std::uint64_t start,
                          std::uint64_t end, std::string_view build_id, std::uint32_t flags) {
    trace::ModuleRecord record{};
    record.time = now_;
    record.bias = bias;
    record.start = start;
    record.end = end;
    record.change = trace::ModuleChange::load;
    record.flags = flags;
    record.path_bytes = static_cast<std::uint16_t>(std::min(path.size(), sizeof(record.path)));
    std::copy_n(path.begin(), record.path_bytes, record.path);
    record.build_id_bytes =
        static_cast<std::uint16_t>(std::min(build_id.size(), sizeof(record.build_id)));
    std::copy_n(build_id.begin(), record.build_id_bytes, record.build_id);
    modules_.push_back(record);
}

void TraceBuilder::unload(std::uint64_t start) {
    trace::ModuleRecord record{};
    record.time = now_;
    record.start = start;
    record.end = start + 1;
    record.change = trace::ModuleChange::unload;
    modules_.push_back(record);
}

std::uint32_t TraceBuilder::stack(const std::vector<trace::Frame>& frames, bool cut) {
    trace::StackSlot& slot = stacks_.emplace_back();
    slot.hash = stacks_.size() * 0x9e3779b97f4a7c15;
    slot.first = static_cast<std::uint32_t>(frames_.size() + 1);
    slot.frames = static_cast<std::uint16_t>(frames.size());
    slot.flags = cut ? trace::kCutStack : 0;
    slot.modules = static_cast<std::uint32_t>(modules_.size());
    slot.reserved = 0;
    slot.allocations = 0;
    slot.bytes = 0;
    frames_.insert(frames_.end(), frames.begin(), frames.end());
    return static_cast<std::uint32_t>(stacks_.size());
}

std::uint32_t TraceBuilder::thread(std::string_view name, std::uint32_t os_id) {
    trace::ThreadRecord& record = threads_.emplace_back();
    record.number = static_cast<std::uint32_t>(threads_.size());
    record.os_id = os_id;
    record.start = now_;
    record.end = 0;
    set_text(record.name, name);
    std::ranges::fill(record.reserved, 0);
    return record.number;
}

trace::DeviceCounters& TraceBuilder::counters_of(std::uint32_t ordinal) {
    while (devices_.size() <= ordinal)
        std::memset(static_cast<void*>(&devices_.emplace_back()), 0, sizeof(trace::DeviceCounters));
    return devices_[ordinal];
}

void TraceBuilder::device(std::uint32_t ordinal, std::string_view name, std::uint64_t total) {
    set_text(counters_of(ordinal).name, name);
    counters_of(ordinal).total = total;
}

void TraceBuilder::statistic(std::string_view name, std::uint64_t value) {
    trace::StatisticRecord& record = statistics_.emplace_back();
    set_text(record.name, name);
    record.value = value;
    record.time = now_;
}

void TraceBuilder::setting(std::string_view name, std::string_view value) {
    settings_.append(name).push_back('\0');
    settings_.append(value).push_back('\0');
}

void TraceBuilder::alloc(std::uint64_t address, std::uint64_t size, const EventDetails& details) {
    EventRecord& record = add(EventKind::alloc, address, size, details);
    keep({trace::space_of(details.memory), address}, record);
    count(record, 1);
    if (details.stack == 0 || details.stack > stacks_.size()) return;
    trace::StackSlot& slot = stacks_[details.stack - 1];
    slot.allocations.fetch_add(1);
    slot.bytes.fetch_add(size);
}

void TraceBuilder::free(std::uint64_t address, const EventDetails& details, bool pending) {
    EventDetails all = details;
    std::uint64_t size = 0;
    if (!pending) all.flags |= trace::kSettled;
    const auto found = live_.find({trace::space_of(details.memory), address});
    if (found != live_.end()) {
        size = found->second.size;
        all.extra = found->second.extra;
        all.stack = found->second.stack;
        all.memory = found->second.memory;
        count(found->second, -1);
        live_.erase(found);
    } else {
        header_->counters.unknown_frees.fetch_add(1);
    }
    add(EventKind::free, address, size, all);
}

void TraceBuilder::free_completed(std::uint64_t address, std::uint64_t size,
                                  const EventDetails& details) {
    add(EventKind::free_completed, address, size, details);
}

void TraceBuilder::segment_alloc(std::uint64_t address, std::uint64_t size, bool large,
                                 const EventDetails& details) {
    EventDetails all = details;
    if (large) all.flags |= trace::kLarge;
    EventRecord& record = add(EventKind::segment_alloc, address, size, all);
    keep({AddressSpace::segment, address}, record);
    count(record, 1);
}

void TraceBuilder::segment_free(std::uint64_t address, const EventDetails& details) {
    const auto found = live_.find({AddressSpace::segment, address});
    EventDetails all = details;
    std::uint64_t size = 0;
    if (found != live_.end()) {
        size = found->second.size;
        all.flags |= found->second.flags;
        count(found->second, -1);
        live_.erase(found);
    }
    add(EventKind::segment_free, address, size, all);
}

void TraceBuilder::out_of_memory(std::uint64_t size, std::uint64_t free_bytes,
                                 const EventDetails& details) {
    EventDetails all = details;
    all.stream = free_bytes;
    add(EventKind::out_of_memory, 0, size, all);
    header_->seen.fetch_or(trace::kOutOfMemory);
}

void TraceBuilder::event(EventKind kind, std::uint64_t address, std::uint64_t size,
                         const EventDetails& details) {
    const EventRecord& record = add(kind, address, size, details);
    const Key segment{AddressSpace::segment, address};
    if (kind == EventKind::segment_map) keep(segment, record);
    if (kind == EventKind::segment_unmap) live_.erase(segment);
}

bool TraceBuilder::claim_chunk(std::uint32_t thread) {
    const auto full = writing_.find(thread);
    if (full != writing_.end()) {
        chunks_[full->second.chunk].header.state = trace::ChunkState::complete;
        writing_.erase(full);
    }
    // A chunk that a running thread writes is passed over, with its number.
    const auto is_taken = [&](std::size_t slot) {
        return std::ranges::any_of(writing_,
                                   [&](const auto& one) { return one.second.chunk == slot; });
    };
    for (std::size_t tries = 0; tries <= chunks_.size(); ++tries) {
        const std::uint64_t claim = ++claims_;
        const std::size_t slot = (claim - 1) % ring_chunks_;
        if (is_taken(slot)) continue;
        if (slot == chunks_.size()) {
            std::memset(static_cast<void*>(&chunks_.emplace_back()), 0, sizeof(trace::Chunk));
        } else {
            const std::uint64_t before = chunks_[slot].header.claim;
            for (std::uint32_t i = 0; i < trace::kChunkRecords; ++i) {
                if (chunks_[slot].records[i].sequence == trace::event_sequence(before, i))
                    header_->counters.overwritten.fetch_add(1);
            }
        }
        chunks_[slot].header.claim = claim;
        chunks_[slot].header.state = trace::ChunkState::writing;
        chunks_[slot].header.thread = thread;
        writing_[thread] = {slot, 0};
        return true;
    }
    return false;
}

EventRecord& TraceBuilder::place_for(std::uint32_t thread, std::uint64_t& sequence) {
    const auto at = writing_.find(thread);
    const bool room = at != writing_.end() && at->second.used < trace::kChunkRecords;
    if (losing_ || (!room && !claim_chunk(thread))) {
        header_->counters.lost.fetch_add(1);
        sequence = trace::kLostSequence;
        return lost_;
    }
    Writing& place = writing_[thread];
    trace::Chunk& chunk = chunks_[place.chunk];
    sequence = trace::event_sequence(chunk.header.claim, place.used);
    return chunk.records[place.used++];
}

EventRecord& TraceBuilder::add(EventKind kind, std::uint64_t address, std::uint64_t size,
                               const EventDetails& details) {
    std::uint64_t sequence = 0;
    EventRecord& record = place_for(details.thread, sequence);
    record.sequence = sequence;
    record.time = now_;
    record.address = address;
    record.size = size;
    record.stream = details.stream;
    record.stack = details.stack;
    record.thread = details.thread;
    record.kind = kind;
    record.memory = details.memory;
    record.device = details.device;
    record.flags = details.flags;
    record.extra = details.extra;
    record.free_stack = details.free_stack;
    record.pool = details.pool;
    record.call = details.call;
    record.check = trace::check_word(record);
    now_ += step_;
    return record;
}

void TraceBuilder::keep(const Key& key, const EventRecord& record) {
    copy(live_[key], record);
}

void TraceBuilder::count(const EventRecord& record, std::int64_t sign) {
    trace::DeviceCounters& device = counters_of(record.device);
    const std::int64_t bytes = sign * static_cast<std::int64_t>(record.size);
    const auto raise = [&](const auto& value, auto& peak, std::atomic<std::uint64_t>* time) {
        if (value <= peak) return;
        peak = value.load();
        if (time != nullptr) *time = record.time;
    };
    if (record.kind == EventKind::segment_alloc) {
        add_to(device.reserved, bytes);
        raise(device.reserved, device.reserved_peak, &device.reserved_peak_time);
        return;
    }
    if (trace::on_device(record.memory)) add_to(device.live, bytes);
    if (record.memory == MemoryType::pooled) add_to(device.live_pooled, bytes);
    if (record.memory == MemoryType::pinned) add_to(device.host, bytes);
    raise(device.live, device.live_peak, &device.live_peak_time);
    raise(device.host, device.host_peak, nullptr);
}

template <class Out>
void TraceBuilder::emit(Out&& out) {
    struct Part {
        SectionType type;
        std::uint32_t stride;
        std::uint64_t used;
        std::uint64_t room;
    };
    const auto size_of = [](const auto& all, std::uint64_t least) {
        const std::uint64_t stride = sizeof(all[0]);
        return std::pair{stride * all.size(), page_up(stride * std::max(least, 2 * all.size()))};
    };
    std::vector<Part> parts;
    const auto part = [&](SectionType type, std::uint64_t stride, std::uint64_t used,
                          std::uint64_t room) {
        parts.push_back({type, static_cast<std::uint32_t>(stride), used, room});
    };
    const std::uint64_t live_bytes = page_up(2 * sizeof(EventRecord) * live_.size() + 1);
    part(SectionType::settings, 1, settings_.size(), page_up(settings_.size() + 1));
    const auto add_table = [&](SectionType type, const auto& all) {
        const auto [used, room] = size_of(all, 16);
        part(type, sizeof(all[0]), used, room);
    };
    add_table(SectionType::statistics, statistics_);
    add_table(SectionType::devices, devices_);
    add_table(SectionType::threads, threads_);
    add_table(SectionType::modules, modules_);
    add_table(SectionType::stacks, stacks_);
    add_table(SectionType::frames, frames_);
    part(SectionType::live, sizeof(EventRecord), live_bytes, live_bytes);
    part(SectionType::events, trace::kChunkBytes, chunks_.size() * trace::kChunkBytes,
         std::max<std::uint64_t>(chunks_.size(), 1) * trace::kChunkBytes);

    std::uint64_t offset = trace::kHeaderBytes;
    header_->section_count = static_cast<std::uint32_t>(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
        trace::Section& section = header_->sections[i];
        section.type = parts[i].type;
        section.stride = parts[i].stride;
        section.offset = offset;
        section.length = parts[i].room;
        section.used = parts[i].used;
        offset += parts[i].room;
    }
    header_->file_bytes = offset;
    header_->latest_sequence = 2;
    header_->latest_ticks = now_;
    header_->latest_realtime_ns = kEpoch + (now_ - kStart);
    header_->counters.next_claim = claims_;
    header_->counters.live_records = live_.size();

    out(header_.get(), sizeof(trace::Header));
    const std::vector<std::byte> zeroes(4096);
    const auto pad = [&](std::uint64_t bytes) {
        for (; bytes != 0; bytes -= std::min<std::uint64_t>(bytes, zeroes.size()))
            out(zeroes.data(), std::min<std::uint64_t>(bytes, zeroes.size()));
    };
    std::size_t next = 0;
    const auto finish = [&] {
        pad(parts[next].room - parts[next].used);
        ++next;
    };
    out(settings_.data(), settings_.size());
    finish();
    const auto emit_table = [&](const auto& all) {
        for (const auto& one : all)
            out(&one, sizeof(one));
        finish();
    };
    emit_table(statistics_);
    emit_table(devices_);
    emit_table(threads_);
    emit_table(modules_);
    emit_table(stacks_);
    emit_table(frames_);
    for (const auto& [key, record] : live_) {
        out(&record, sizeof(record));
        pad(sizeof(record)); // a free slot behind each
    }
    pad(live_bytes - 2 * sizeof(EventRecord) * live_.size());
    ++next;
    emit_table(chunks_);
}

std::vector<std::byte> TraceBuilder::bytes() {
    std::vector<std::byte> all;
    emit([&](const void* data, std::size_t bytes) {
        const auto* const from = static_cast<const std::byte*>(data);
        all.insert(all.end(), from, from + bytes);
    });
    return all;
}

bool TraceBuilder::write(const std::string& path) {
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) return false;
    bool good = true;
    emit([&](const void* data, std::size_t bytes) {
        good = good && (bytes == 0 || std::fwrite(data, bytes, 1, file) == 1);
    });
    return (std::fclose(file) == 0) && good;
}

} // namespace cachealloc::tests
