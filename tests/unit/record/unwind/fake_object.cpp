#include "tests/unit/record/unwind/fake_object.h"

#include <cstring>

#include <elf.h>
#include <sys/mman.h>

namespace cachealloc::test {

FakeObject::FakeObject(const std::vector<FakeFunction>& functions, const FakeCommon& common)
    : memory_(static_cast<std::byte*>(
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    write_headers();
    // .eh_frame_hdr: version, pcrel sdata4, udata4, datarel sdata4; where .eh_frame is; the table.
    put(Bytes{1, 0x1b, 0x03, 0x3b});
    const std::size_t header_bytes = 12 + 8 * functions.size();
    number(static_cast<std::int32_t>(header_bytes - used_));
    number(static_cast<std::uint32_t>(functions.size()));
    const std::size_t pairs = used_;
    used_ = header_bytes;

    const std::size_t group = used_;
    number(std::uint32_t{0});
    number(std::uint32_t{0});
    number(common.version);
    put(common.augmentation.c_str(), common.augmentation.size() + 1);
    put(Bytes{common.code_align, common.data_align, common.return_column});
    if (!common.augmentation.empty()) {
        number(static_cast<std::uint8_t>(common.augmentation_data.size()));
        put(common.augmentation_data);
    }
    put(common.instructions);
    pad(group);

    for (std::size_t i = 0; i < functions.size(); ++i) {
        const FakeFunction& function = functions[i];
        const auto start = static_cast<std::int32_t>(kCode + function.start) -
                           static_cast<std::int32_t>(kTables); // from the header
        const std::size_t entry = used_;
        number(std::uint32_t{0});
        number(static_cast<std::uint32_t>(used_ - group));
        number(start - static_cast<std::int32_t>(used_)); // pcrel
        number(function.size);
        if (!common.augmentation.empty()) number(std::uint8_t{0});
        put(function.instructions);
        pad(entry);
        const std::size_t end = used_;
        used_ = pairs + 8 * i;
        number(start);
        number(static_cast<std::int32_t>(entry));
        used_ = end;
    }
    number(std::uint32_t{0}); // the end of .eh_frame
}

FakeObject::~FakeObject() {
    munmap(memory_, kBytes);
}

void FakeObject::put(const void* from, std::size_t count) {
    if (count != 0) std::memcpy(memory_ + kTables + used_, from, count);
    used_ += count;
}

// Fills up with DW_CFA_nop and notes the length of the entry that begins at `start`.
void FakeObject::pad(std::size_t start) {
    while (used_ % 8 != 4)
        number(std::uint8_t{0});
    const std::size_t end = used_;
    used_ = start;
    number(static_cast<std::uint32_t>(end - start - 4));
    used_ = end;
}

void FakeObject::write_headers() {
    Elf64_Ehdr elf{};
    std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
    elf.e_ident[EI_CLASS] = ELFCLASS64;
    elf.e_phoff = sizeof elf;
    elf.e_phentsize = sizeof(Elf64_Phdr);
    elf.e_phnum = 3;
    std::memcpy(memory_, &elf, sizeof elf);
    Elf64_Phdr parts[3]{};
    parts[0] = {PT_LOAD, PF_R, 0, 0, 0, kPage, kPage, kPage};
    parts[1] = {PT_LOAD, PF_X, kCode, kCode, kCode, 2 * kPage, 2 * kPage, kPage};
    parts[2] = {PT_LOAD, PF_R, kTables, kTables, kTables, 2 * kPage, 2 * kPage, kPage};
    std::memcpy(memory_ + sizeof elf, parts, sizeof parts);
}

CodeObject FakeObject::object() const {
    const auto start = reinterpret_cast<std::uintptr_t>(memory_);
    return {start, start + kBytes, memory_ + kTables};
}

std::uintptr_t FakeObject::code(std::uint32_t offset) const {
    return reinterpret_cast<std::uintptr_t>(memory_) + kCode + offset;
}

TableBytes FakeObject::tables() const {
    return {memory_ + kTables, header(), used_};
}

std::uintptr_t FakeObject::header() const {
    return reinterpret_cast<std::uintptr_t>(memory_) + kTables;
}

} // namespace cachealloc::test
