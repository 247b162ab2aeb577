// Names of functions as a reader knows them.
#pragma once

#include <elfutils/libdw.h>

#include <string>
#include <unordered_map>

namespace cachealloc::tools {

/// The name in the language's own spelling, if it is mangled, else as it is. Longer ones than a
/// reader would read are cut, and end in "...".
[[nodiscard]] std::string demangled(const char* name);

/// Names of functions in one module's debug information.
class FunctionNames {
  public:
    /// The function's full name: its linkage name demangled, or the names of its namespaces and
    /// classes before its own. "" if it has none. Remembers what it found.
    const std::string& of(Dwarf_Die& function);
    /// The linkage name, through abstract origin and specification; null if there is none.
    static const char* linkage_name(Dwarf_Die& function);

  private:
    std::unordered_map<void*, std::string> names_; ///< by the entry's place in memory
};

} // namespace cachealloc::tools
