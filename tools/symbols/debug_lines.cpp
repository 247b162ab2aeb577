#include "tools/symbols/debug_lines.h"

#include <dwarf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace cachealloc::tools {
namespace {

// No real program comes near these; they end the reading of a file made to go on for ever.
constexpr std::size_t kMostEntries = 20'000'000; ///< of one unit
constexpr std::size_t kMostRanges = 100'000;     ///< of one entry
constexpr std::size_t kDeepestScope = 64;
constexpr std::size_t kDeepestInline = 128;

/// Entries that hold functions.
bool holds_functions(int tag) {
    return tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
           tag == DW_TAG_union_type || tag == DW_TAG_module;
}

/// Entries inside a function that hold inlined calls.
bool holds_calls(int tag) {
    return tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block ||
           tag == DW_TAG_try_block || tag == DW_TAG_catch_block;
}

/// The entry inside `scope` that holds the address, if one does.
std::optional<Dwarf_Die> inner_scope(Dwarf_Die& scope, std::uint64_t address) {
    Dwarf_Die child;
    if (dwarf_child(&scope, &child) != 0) {
        return std::nullopt;
    }
    for (std::size_t count = 0; count < kMostEntries; ++count) {
        if (holds_calls(dwarf_tag(&child)) && dwarf_haspc(&child, address) == 1) {
            return child;
        }
        if (dwarf_siblingof(&child, &child) != 0) {
            break;
        }
    }
    return std::nullopt;
}

std::string absolute(Dwarf_Die& unit, const char* file) {
    if (file == nullptr) {
        return {};
    }
    Dwarf_Attribute attribute;
    if (*file != '/' && dwarf_attr(&unit, DW_AT_comp_dir, &attribute) != nullptr) {
        if (const char* directory = dwarf_formstring(&attribute)) {
            return std::string(directory) + "/" + file;
        }
    }
    return file;
}

/// The place in the line table; the address must be inside the unit.
void read_line(Dwarf_Die& unit, std::uint64_t address, RawFrame& frame) {
    Dwarf_Line* line = dwarf_getsrc_die(&unit, address);
    int number = 0;
    if (line != nullptr && dwarf_lineno(line, &number) == 0 && number > 0) {
        frame.line = static_cast<std::uint32_t>(number);
    }
    if (line != nullptr) {
        frame.file = absolute(unit, dwarf_linesrc(line, nullptr, nullptr));
    }
}

std::uint64_t number_of(Dwarf_Die& die, unsigned which) {
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (dwarf_attr_integrate(&die, which, &attribute) == nullptr ||
        dwarf_formudata(&attribute, &value) != 0) {
        return 0;
    }
    return value;
}

} // namespace

const Dwarf_Die* DebugLines::find(const Ranges& ranges, std::uint64_t address) {
    auto next =
        std::upper_bound(ranges.begin(), ranges.end(), address,
                         [](std::uint64_t place, const Range& range) { return place < range.low; });
    if (next == ranges.begin() || address >= (--next)->high) {
        return nullptr;
    }
    return &next->die;
}

void DebugLines::add_ranges(Ranges& ranges, Dwarf_Die& die) {
    Dwarf_Addr base = 0;
    std::ptrdiff_t offset = 0;
    for (std::size_t count = 0; count < kMostRanges; ++count) {
        Range range{0, 0, die};
        offset = dwarf_ranges(&die, offset, &base, &range.low, &range.high);
        if (offset <= 0) {
            return;
        }
        // What the linker dropped keeps a range at 0.
        if (range.low < range.high && range.low != 0) {
            ranges.push_back(range);
        }
    }
}

std::optional<Dwarf_Die> DebugLines::unit_at(std::uint64_t address) {
    Dwarf_Die unit;
    if (dwarf_addrdie(dwarf_, address, &unit) != nullptr) {
        return unit;
    }
    // Clang writes no index of addresses: the units themselves say what they cover.
    if (!units_) {
        units_.emplace();
        Dwarf_CU* cursor = nullptr;
        std::uint8_t type = 0;
        Dwarf_Half version = 0;
        while (dwarf_get_units(dwarf_, cursor, &cursor, &version, &type, &unit, nullptr) == 0) {
            if (type == DW_UT_compile || type == DW_UT_skeleton) {
                add_ranges(*units_, unit);
            }
        }
        std::sort(units_->begin(), units_->end(),
                  [](const Range& a, const Range& b) { return a.low < b.low; });
    }
    if (const Dwarf_Die* found = find(*units_, address)) {
        return *found;
    }
    return std::nullopt;
}

const DebugLines::Ranges& DebugLines::functions_of(Dwarf_Die& unit) {
    const auto [place, added] = functions_.try_emplace(unit.addr);
    Ranges& functions = place->second;
    if (!added) {
        return functions;
    }
    Dwarf_Die top = unit;
    Dwarf_Die split;
    std::uint8_t type = 0;
    if (dwarf_cu_info(unit.cu, nullptr, &type, nullptr, &split, nullptr, nullptr, nullptr) == 0 &&
        type == DW_UT_skeleton && split.addr != nullptr) {
        top = split;
    }
    // Depth first with a stack of our own: namespaces may be nested as deep as a file likes.
    std::array<Dwarf_Die, kDeepestScope> stack;
    std::size_t depth = dwarf_child(&top, stack.data()) == 0 ? 1 : 0;
    for (std::size_t count = 0; depth > 0 && count < kMostEntries; ++count) {
        Dwarf_Die die = stack[depth - 1];
        const int tag = dwarf_tag(&die);
        if (tag == DW_TAG_subprogram) {
            add_ranges(functions, die);
        }
        if (dwarf_siblingof(&die, &stack[depth - 1]) != 0) {
            --depth;
        }
        if (holds_functions(tag) && depth < kDeepestScope &&
            dwarf_child(&die, &stack[depth]) == 0) {
            ++depth;
        }
    }
    std::sort(functions.begin(), functions.end(),
              [](const Range& a, const Range& b) { return a.low < b.low; });
    return functions;
}

std::string DebugLines::call_file(Dwarf_Die& unit, Dwarf_Die& inlined) {
    Dwarf_Files* files = nullptr;
    std::size_t count = 0;
    const std::uint64_t index = number_of(inlined, DW_AT_call_file);
    if (dwarf_getsrcfiles(&unit, &files, &count) != 0 || index >= count) {
        return {};
    }
    return absolute(unit, dwarf_filesrc(files, index, nullptr, nullptr));
}

std::string DebugLines::outermost_name(Dwarf_Die& function, const char* known) {
    // Functions local to a C++ file have no linkage name here, but one in the symbol table.
    const bool mangled = known != nullptr && std::strncmp(known, "_Z", 2) == 0;
    if (mangled && FunctionNames::linkage_name(function) == nullptr) {
        return demangled(known);
    }
    const std::string& name = names_.of(function);
    return name.empty() && known != nullptr ? demangled(known) : name;
}

std::vector<RawFrame> DebugLines::frames(std::uint64_t address, const char* known) {
    std::vector<RawFrame> frames;
    std::optional<Dwarf_Die> unit = unit_at(address);
    if (!unit) {
        return frames;
    }
    RawFrame innermost;
    read_line(*unit, address, innermost);
    const Dwarf_Die* found = find(functions_of(*unit), address);
    if (found == nullptr) {
        // Code with lines but without an entry, as assembly is.
        if (known != nullptr && innermost.line != 0) {
            innermost.function = demangled(known);
            frames.push_back(std::move(innermost));
        }
        return frames;
    }
    // From the function inwards. Each inlined call says where it is called from, which is the line
    // of the function around it.
    Dwarf_Die scope = *found;
    RawFrame frame;
    frame.function = outermost_name(scope, known);
    for (std::size_t depth = 0; depth < kDeepestInline; ++depth) {
        std::optional<Dwarf_Die> inner = inner_scope(scope, address);
        if (!inner) {
            break;
        }
        scope = *inner;
        if (dwarf_tag(&scope) == DW_TAG_inlined_subroutine) {
            frame.file = call_file(*unit, scope);
            frame.line = static_cast<std::uint32_t>(number_of(scope, DW_AT_call_line));
            frames.push_back(std::move(frame));
            frame = {names_.of(scope), {}, 0, true};
        }
    }
    frame.file = std::move(innermost.file);
    frame.line = innermost.line;
    frames.push_back(std::move(frame));
    std::reverse(frames.begin(), frames.end());
    return frames;
}

} // namespace cachealloc::tools
