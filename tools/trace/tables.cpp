#include "tools/trace/tables.h"

#include <algorithm>
#include <cstring>

namespace cachealloc::tools {

namespace {

/// The text in a fixed array, up to its NUL or its end.
template <std::size_t Room>
std::string fixed_text(const char (&text)[Room]) {
    return printable({text, ::strnlen(text, Room)});
}

/// Calls `visit` with each element of the section, and its index.
template <class Element, class Visit>
void for_each(const TraceFile& file, trace::SectionType type, Visit visit) {
    const std::size_t stride = file.section(type).stride;
    const std::vector<std::byte> content = file.load(type);
    for (std::size_t at = 0; stride != 0 && at + stride <= content.size(); at += stride)
        visit(*reinterpret_cast<const Element*>(&content[at]), at / stride);
}

std::uint64_t not_negative(const std::atomic<std::int64_t>& value) {
    return static_cast<std::uint64_t>(
        std::max<std::int64_t>(value.load(std::memory_order_relaxed), 0));
}

} // namespace

std::string printable(std::string_view text) {
    std::string clean(text);
    std::ranges::replace_if(
        clean, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
    return clean;
}

Threads::Threads(const TraceFile& file) {
    for_each<trace::ThreadRecord>(
        file, trace::SectionType::threads, [&](const trace::ThreadRecord& record, std::size_t at) {
            if (record.number != at + 1) return; // not in use, or damaged
            threads_.push_back({.number = record.number,
                                .os_id = record.os_id,
                                .start = record.start,
                                .end = record.end.load(std::memory_order_relaxed),
                                .name = fixed_text(record.name)});
        });
}

const Thread* Threads::find(std::uint32_t number) const {
    const auto found = std::ranges::lower_bound(threads_, number, {}, &Thread::number);
    return found != threads_.end() && found->number == number ? &*found : nullptr;
}

Devices::Devices(const TraceFile& file) {
    for_each<trace::DeviceCounters>(
        file, trace::SectionType::devices,
        [&](const trace::DeviceCounters& from, std::size_t ordinal) {
            Device device{.ordinal = static_cast<std::uint32_t>(ordinal),
                          .name = fixed_text(from.name),
                          .total = from.total,
                          .live = not_negative(from.live),
                          .live_peak = not_negative(from.live_peak),
                          .live_pooled = not_negative(from.live_pooled),
                          .reserved = not_negative(from.reserved),
                          .reserved_peak = not_negative(from.reserved_peak),
                          .host = not_negative(from.host),
                          .host_peak = not_negative(from.host_peak),
                          .live_peak_time = from.live_peak_time.load(std::memory_order_relaxed),
                          .reserved_peak_time =
                              from.reserved_peak_time.load(std::memory_order_relaxed)};
            const bool used = !device.name.empty() || device.live_peak != 0 ||
                              device.reserved_peak != 0 || device.host_peak != 0;
            if (used && ordinal < trace::kDevices) devices_.push_back(std::move(device));
        });
}

const Device* Devices::find(std::uint32_t ordinal) const {
    const auto found = std::ranges::find(devices_, ordinal, &Device::ordinal);
    return found == devices_.end() ? nullptr : &*found;
}

Statistics::Statistics(const TraceFile& file) {
    for_each<trace::StatisticRecord>(file, trace::SectionType::statistics,
                                     [&](const trace::StatisticRecord& record, std::size_t) {
                                         std::string name = fixed_text(record.name);
                                         if (!name.empty())
                                             values_[std::move(name)] =
                                                 record.value.load(std::memory_order_relaxed);
                                     });
}

std::uint64_t Statistics::operator[](std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : found->second;
}

Settings::Settings(const TraceFile& file) {
    const std::vector<std::byte> content = file.load(trace::SectionType::settings);
    std::string_view rest(reinterpret_cast<const char*>(content.data()), content.size());
    const auto take = [&rest](std::string& text) {
        const std::size_t end = rest.find('\0');
        if (end == std::string_view::npos) return false;
        text = printable(rest.substr(0, end));
        rest.remove_prefix(end + 1);
        return true;
    };
    for (std::string name, value; take(name) && !name.empty() && take(value);) {
        const auto known =
            std::ranges::find(values_, name, &std::pair<std::string, std::string>::first);
        if (known != values_.end()) {
            known->second = value;
        } else {
            values_.emplace_back(name, value);
        }
    }
}

std::string_view Settings::operator[](std::string_view name) const {
    for (const auto& [known, value] : values_) {
        if (known == name) return value;
    }
    return {};
}

} // namespace cachealloc::tools
