#include "tests/fuzz/mutations.h"

#include "core/record/trace_format.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace cachealloc::tests {

namespace {

using trace::SectionType;

constexpr std::array<std::uint64_t, 14> kAwkward = {0,
                                                    1,
                                                    2,
                                                    63,
                                                    64,
                                                    4095,
                                                    4096,
                                                    0x7fff,
                                                    0xffff,
                                                    0x7fffffff,
                                                    0xffffffff,
                                                    0x7fffffffffffffff,
                                                    0x8000000000000000,
                                                    0xffffffffffffffff};

/// A place in the file; `size` is 0 where there is none.
struct Region {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
};

void change_field(std::vector<std::byte>& bytes, std::uint64_t offset, std::size_t width,
                  FuzzRandom& random) {
    if (width > bytes.size() || offset > bytes.size() - width) return;
    std::uint64_t value = 0;
    std::memcpy(&value, &bytes[offset], width);
    switch (random.below(4)) {
    case 0:
        value = kAwkward[random.below(kAwkward.size())];
        break;
    case 1:
        value ^= std::uint64_t{1} << random.below(8 * width);
        break;
    case 2:
        value += random.below(9) - 4;
        break;
    default:
        value = random.next() >> random.below(64);
    }
    std::memcpy(&bytes[offset], &value, width);
}

Region section_of(const std::vector<std::byte>& bytes, SectionType wanted, std::uint64_t stride) {
    for (std::uint64_t i = 0; i < trace::kMaxSections; ++i) {
        const std::uint64_t at = offsetof(trace::Header, sections) + i * sizeof(trace::Section);
        struct { // trace::Section without its atomic
            std::uint32_t type, stride;
            std::uint64_t offset, length, used;
        } section{};
        static_assert(sizeof(section) == sizeof(trace::Section));
        std::memcpy(&section, &bytes[at], sizeof(section));
        if (section.type != static_cast<std::uint32_t>(wanted)) continue;
        if (section.offset > bytes.size() || section.used > bytes.size() - section.offset)
            return {};
        return {section.offset, section.used / stride * stride};
    }
    return {};
}

/// A field of a random element of a section; the element's place.
Region change_element(std::vector<std::byte>& bytes, SectionType type, std::uint64_t stride,
                      FuzzRandom& random) {
    const Region section = section_of(bytes, type, stride);
    if (section.size == 0) return {};
    const std::uint64_t element = section.offset + random.below(section.size / stride) * stride;
    const std::size_t width = stride == 1 ? 1 : std::size_t{1} << random.below(4);
    const std::uint64_t places = std::min<std::uint64_t>(stride, 96) / width; // modules: no texts
    change_field(bytes, element + random.below(places) * width, width, random);
    return {element, stride};
}

void put_check_right(std::vector<std::byte>& bytes, std::uint64_t offset) {
    if (offset > bytes.size() || bytes.size() - offset < sizeof(trace::EventRecord)) return;
    alignas(trace::EventRecord) std::byte room[sizeof(trace::EventRecord)];
    std::memcpy(room, &bytes[offset], sizeof(room));
    auto* const record = reinterpret_cast<trace::EventRecord*>(room);
    record->check = trace::check_word(*record);
    std::memcpy(&bytes[offset], room, sizeof(room));
}

/// A record of the history, or a chunk's header.
void change_event(std::vector<std::byte>& bytes, FuzzRandom& random) {
    const Region chunk = section_of(bytes, SectionType::events, trace::kChunkBytes);
    if (chunk.size == 0) return;
    const std::uint64_t chunks = chunk.size / trace::kChunkBytes;
    const std::uint64_t at = chunk.offset + random.below(chunks) * trace::kChunkBytes +
                             random.below(64) * sizeof(trace::EventRecord);
    const std::size_t width = std::size_t{1} << random.below(4);
    // Seldom the sequence: a record without its own is not looked at.
    const std::uint64_t first = random.below(8) == 0 ? 0 : 8;
    const std::uint64_t field = first + random.below((62 - first) / width) * width;
    change_field(bytes, at + field, width, random);
    if (at % trace::kChunkBytes != chunk.offset % trace::kChunkBytes) put_check_right(bytes, at);
}

} // namespace

void mutate(std::vector<std::byte>& bytes, FuzzRandom& random) {
    if (bytes.empty()) return;
    if (bytes.size() < trace::kHeaderBytes) {
        change_field(bytes, random.below(bytes.size()), 1, random);
        return;
    }
    const std::uint64_t sections = offsetof(trace::Header, sections);
    switch (random.below(16)) {
    case 0:
    case 1:
        change_field(bytes, random.below(192 / 4) * 4, 4 << random.below(2), random);
        break;
    case 2:
    case 3:
    case 4: // the table has nine or ten entries
        change_field(bytes, sections + random.below(10 * sizeof(trace::Section) / 4) * 4,
                     4 << random.below(2), random);
        break;
    case 5:
        put_check_right(bytes, change_element(bytes, SectionType::live, 64, random).offset);
        break;
    case 6:
        change_element(bytes, SectionType::stacks, sizeof(trace::StackSlot), random);
        break;
    case 7:
        change_element(bytes, SectionType::frames, sizeof(trace::Frame), random);
        break;
    case 8:
        change_element(bytes, SectionType::modules, sizeof(trace::ModuleRecord), random);
        break;
    case 9:
        change_element(bytes, SectionType::threads, sizeof(trace::ThreadRecord), random);
        break;
    case 10:
        change_element(bytes, SectionType::devices, sizeof(trace::DeviceCounters), random);
        break;
    case 11:
        change_element(bytes, SectionType::settings, 1, random);
        break;
    case 12:
        change_field(bytes, random.below(bytes.size()), 1, random);
        break;
    case 13:
        if (random.below(4) == 0) bytes.resize(random.below(bytes.size()) + 1);
        break;
    default:
        change_event(bytes, random);
    }
}

} // namespace cachealloc::tests
