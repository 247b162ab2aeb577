// The functions that a file's symbol table names, sorted by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct Dwfl_Module;

namespace cachealloc::tools {

class ElfSymbols {
  public:
    struct Found {
        const char* name; ///< as in the file, mangled; lives as long as the module
        std::uint64_t offset;
    };

    /// Reads the table of the module (of its separate debug file where that has the fuller one).
    /// Addresses are the module's. O(n log n) in its symbols.
    explicit ElfSymbols(Dwfl_Module* module);

    /// The function that holds the address; none where the table leaves a gap there, so that a
    /// neighbour is never taken for a function that was stripped. O(log n).
    [[nodiscard]] std::optional<Found> find(std::uint64_t address) const;

    /// Whether it names local functions too, not only what the file exports.
    [[nodiscard]] bool complete() const { return complete_; }
    [[nodiscard]] bool empty() const { return functions_.empty(); }

  private:
    struct Function {
        std::uint64_t start;
        std::uint64_t size; ///< 0: not known, up to the next one
        const char* name;
        std::uint8_t rank; ///< of several names of one place, the highest is shown
    };

    std::vector<Function> functions_; ///< by start, one of each
    bool complete_ = false;
};

} // namespace cachealloc::tools
