#include "core/record/unwind/frame_tables.h"

#include <algorithm>

#include <elf.h>

namespace cachealloc {

namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr std::uint8_t kOmitted = 0xff;
constexpr std::uint8_t kData4 = 0x03;
constexpr std::uint8_t kDatarelSdata4 = 0x3b;

} // namespace

FrameTables::FrameTables(std::span<const TableBytes> segments, std::uintptr_t header)
    : header_(header) {
    for (const TableBytes& segment : segments)
        add(segment);
}

// The program headers are looked for in the object's first page, where linkers put them: without
// them nobody knows which parts of the mapping may be read.
FrameTables::FrameTables(const CodeObject& object)
    : header_(reinterpret_cast<std::uintptr_t>(object.frame_header)) {
    if (object.frame_header == nullptr || object.end - object.start < kPage) return;
    const TableBytes page{reinterpret_cast<const std::byte*>(object.start), object.start, kPage};
    const auto elf = TableReader(page).fixed<Elf64_Ehdr>();
    if (!std::equal(elf.e_ident, elf.e_ident + SELFMAG, ELFMAG) ||
        elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_phentsize != sizeof(Elf64_Phdr) ||
        elf.e_phoff >= kPage)
        return;
    std::uintptr_t bias = 0;
    bool first = true;
    TableReader reader(page, object.start + elf.e_phoff);
    for (std::size_t i = 0; i < elf.e_phnum; ++i) {
        const auto part = reader.fixed<Elf64_Phdr>();
        if (!reader.ok() || part.p_type != PT_LOAD) continue;
        if (first) bias = object.start - (part.p_vaddr & ~(kPage - 1));
        first = false;
        const std::uintptr_t start = bias + part.p_vaddr;
        if ((part.p_flags & PF_R) == 0 || start < object.start || start > object.end) continue;
        add({reinterpret_cast<const std::byte*>(start), start,
             std::min<std::size_t>(part.p_filesz, object.end - start)});
    }
}

void FrameTables::add(const TableBytes& segment) {
    if (count_ < kSegments) segments_[count_++] = segment;
}

const TableBytes* FrameTables::around(std::uintptr_t address) const {
    const auto* const end = segments_.data() + count_;
    const auto* const found = std::find_if(
        segments_.data(), end, [&](const TableBytes& each) { return each.holds(address); });
    return found == end ? nullptr : found;
}

FrameRule FrameTables::rule(std::uintptr_t pc) const {
    // A call may be a function's last instruction, so that it returns to the next one's first.
    const std::uintptr_t place = pc - 1;
    const std::uintptr_t entry = find_entry(place);
    return entry == 0 ? FrameRule::complex() : run_entry(entry, place);
}

// The sorted table of .eh_frame_hdr: pairs of a function's start and its entry's address.
std::uintptr_t FrameTables::find_entry(std::uintptr_t place) const {
    const TableBytes* const segment = around(header_);
    if (segment == nullptr) return 0;
    TableReader reader(*segment, header_);
    const auto version = reader.fixed<std::uint8_t>();
    const auto tables_encoding = reader.fixed<std::uint8_t>();
    const auto count_encoding = reader.fixed<std::uint8_t>();
    const auto pairs_encoding = reader.fixed<std::uint8_t>();
    if (version != 1 || count_encoding == kOmitted || (count_encoding & 0x0f) != kData4 ||
        pairs_encoding != kDatarelSdata4)
        return 0;
    reader.skip_pointer(tables_encoding);
    std::uint64_t count = reader.pointer(count_encoding, header_);
    constexpr std::size_t kPair = 8;
    if (!reader.ok()) return 0;
    count = std::min<std::uint64_t>(count, reader.left() / kPair);
    const std::uintptr_t pairs = reader.address();
    const auto start_of = [&](std::uint64_t index) {
        return TableReader(*segment, pairs + index * kPair).pointer(pairs_encoding, header_);
    };
    std::uint64_t low = 0; // pairs before it start at or before the place
    std::uint64_t high = count;
    while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        if (start_of(middle) <= place)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return 0;
    TableReader found(*segment, pairs + (low - 1) * kPair);
    found.skip_pointer(pairs_encoding);
    return found.pointer(pairs_encoding, header_);
}

FrameRule FrameTables::run_entry(std::uintptr_t entry, std::uintptr_t place) const {
    const TableBytes* const segment = around(entry);
    if (segment == nullptr) return FrameRule::complex();
    TableReader reader(*segment, entry);
    const auto length = reader.fixed<std::uint32_t>(); // 0xffffffff (64 bit) is longer than all
    TableReader body = reader.part(length);
    const std::uintptr_t here = body.address();
    const auto distance = body.fixed<std::uint32_t>(); // 0 in what describes a group of functions
    if (!body.ok() || distance == 0) return FrameRule::complex();
    const std::uintptr_t group = here - distance;

    FrameCommon common;
    TableReader common_instructions(*segment, entry);
    bool augmented = false;
    if (!read_common(TableReader(*segment, group), common, common_instructions, augmented))
        return FrameRule::complex();
    const std::uintptr_t begin = body.pointer(common.pointer_encoding, 0);
    // The size has the format of a pointer, but relates to nothing.
    const std::uintptr_t size = body.pointer(common.pointer_encoding & 0x0f, 0);
    if (augmented) body.skip(body.uleb());
    if (!body.ok() || place - begin >= size) return FrameRule::complex();

    FrameProgram program(common);
    if (!program.run_common(common_instructions) || !program.run(body, begin, place))
        return FrameRule::complex();
    return program.rule();
}

bool FrameTables::read_common(TableReader reader, FrameCommon& common, TableReader& instructions,
                              bool& augmented) const {
    const auto length = reader.fixed<std::uint32_t>();
    TableReader body = reader.part(length);
    const auto id = body.fixed<std::uint32_t>();
    const auto version = body.fixed<std::uint8_t>();
    if (!body.ok() || id != 0 || (version != 1 && version != 3)) return false;

    std::array<char, 8> augmentation{};
    std::size_t letters = 0;
    while (const auto letter = body.fixed<std::uint8_t>()) {
        if (letters == augmentation.size()) return false;
        augmentation[letters++] = static_cast<char>(letter);
    }
    common.code_align = body.uleb();
    common.data_align = body.sleb();
    constexpr std::uint64_t kReturnColumn = 16;
    if ((version == 1 ? body.fixed<std::uint8_t>() : body.uleb()) != kReturnColumn) return false;

    augmented = letters != 0;
    if (augmented) {
        if (augmentation[0] != 'z') return false;
        TableReader extra = body.part(body.uleb());
        for (std::size_t i = 1; i < letters; ++i) {
            switch (augmentation[i]) {
            case 'R':
                common.pointer_encoding = extra.fixed<std::uint8_t>();
                break;
            case 'P':
                extra.skip_pointer(extra.fixed<std::uint8_t>());
                break;
            case 'L':
                extra.skip(1);
                break;
            case 'S':
                common.signal_frame = true;
                break;
            default:
                return false;
            }
        }
        if (!extra.ok()) return false;
    }
    instructions = body;
    return body.ok();
}

} // namespace cachealloc
