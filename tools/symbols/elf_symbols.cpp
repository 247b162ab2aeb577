#include "tools/symbols/elf_symbols.h"

#include <elfutils/libdwfl.h>

#include <algorithm>

namespace cachealloc::tools {
namespace {

/// How far before an address its function may start where others start in between: parts of
/// functions written in assembly have names of their own.
constexpr std::size_t kNested = 8;
/// How far a function without a size may reach: assembly at the end of a file has nothing after it.
constexpr std::uint64_t kUnsized = 4096;

/// What of several names of one place is shown: functions before labels, global before weak.
std::uint8_t rank_of(const GElf_Sym& symbol) {
    const unsigned binding = GELF_ST_BIND(symbol.st_info);
    const unsigned by_binding = binding == STB_GLOBAL ? 2 : binding == STB_WEAK ? 1 : 0;
    const bool function = GELF_ST_TYPE(symbol.st_info) != STT_NOTYPE;
    return static_cast<std::uint8_t>((function ? 4 : 0) + by_binding);
}

bool is_code(const GElf_Sym& symbol, GElf_Word section) {
    if (section == SHN_UNDEF || section == SHN_ABS || section == SHN_COMMON) {
        return false;
    }
    const unsigned type = GELF_ST_TYPE(symbol.st_info);
    // Labels count where they have a size, as functions written in assembly may.
    return type == STT_FUNC || type == STT_GNU_IFUNC || (type == STT_NOTYPE && symbol.st_size != 0);
}

} // namespace

ElfSymbols::ElfSymbols(Dwfl_Module* module) {
    const int count = dwfl_module_getsymtab(module);
    for (int index = 1; index < count; ++index) {
        GElf_Sym symbol;
        GElf_Word section = 0;
        const char* name = dwfl_module_getsym(module, index, &symbol, &section);
        if (name == nullptr) {
            continue;
        }
        const unsigned type = GELF_ST_TYPE(symbol.st_info);
        complete_ = complete_ || type == STT_FILE ||
                    (type == STT_FUNC && GELF_ST_BIND(symbol.st_info) == STB_LOCAL);
        if (*name != '\0' && is_code(symbol, section)) {
            functions_.push_back({symbol.st_value, symbol.st_size, name, rank_of(symbol)});
        }
    }
    std::sort(functions_.begin(), functions_.end(), [](const Function& a, const Function& b) {
        return a.start != b.start ? a.start < b.start
               : a.rank != b.rank ? a.rank > b.rank
                                  : a.size > b.size;
    });
    const auto same = [](const Function& a, const Function& b) { return a.start == b.start; };
    functions_.erase(std::unique(functions_.begin(), functions_.end(), same), functions_.end());
    functions_.shrink_to_fit();
}

std::optional<ElfSymbols::Found> ElfSymbols::find(std::uint64_t address) const {
    auto next = std::upper_bound(
        functions_.begin(), functions_.end(), address,
        [](std::uint64_t place, const Function& function) { return place < function.start; });
    for (std::size_t tried = 0; tried < kNested && next != functions_.begin(); ++tried) {
        --next;
        const std::uint64_t offset = address - next->start;
        if (offset < next->size || (next->size == 0 && tried == 0 && offset < kUnsized)) {
            return Found{next->name, offset};
        }
    }
    return std::nullopt;
}

} // namespace cachealloc::tools
