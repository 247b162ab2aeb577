// Functions, lines and inlined calls from one module's debug information.
#pragma once

#include "tools/symbols/function_names.h"

#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace cachealloc::tools {

/// A function at a place, before its texts are shared.
struct RawFrame {
    std::string function;
    std::string file;
    std::uint32_t line = 0;
    bool inlined = false;
};

class DebugLines {
  public:
    /// Does not own `dwarf`.
    explicit DebugLines(Dwarf* dwarf) : dwarf_(dwarf) {}

    /// The functions at an address of the debug information, innermost first; none where it does
    /// not know the address. `known` is what the symbol table calls the outermost, or null. The
    /// first question about a unit reads its functions, later ones take O(log n) and the depth of
    /// inlining.
    std::vector<RawFrame> frames(std::uint64_t address, const char* known);

  private:
    struct Range {
        std::uint64_t low;
        std::uint64_t high;
        Dwarf_Die die;
    };
    /// Sorted by their low ends; looked up by address.
    using Ranges = std::vector<Range>;

    static const Dwarf_Die* find(const Ranges& ranges, std::uint64_t address);
    static void add_ranges(Ranges& ranges, Dwarf_Die& die);
    std::optional<Dwarf_Die> unit_at(std::uint64_t address);
    const Ranges& functions_of(Dwarf_Die& unit);
    std::string outermost_name(Dwarf_Die& function, const char* known);
    static std::string call_file(Dwarf_Die& unit, Dwarf_Die& inlined);

    Dwarf* dwarf_;
    FunctionNames names_;
    std::optional<Ranges> units_; ///< read when the file's own index lacks an address
    std::unordered_map<void*, Ranges> functions_; ///< of a unit, by its place in memory
};

} // namespace cachealloc::tools
