// Turns places in program files into functions, files and lines.
//
// A place is a module (the program or a library, known by path and build-id) and an offset in it:
// the return address that a stack holds, less the module's load bias. The symbolizer subtracts the
// 1 that leads from a return address to its call; nobody else does.
//
// Invariant: an answer never comes from a file other than the one that ran. A file whose build-id
// differs from the recorded one is not used, and the module's state says so. Every place gets at
// least one frame: where nothing is known it is named after the module, as "libfoo.so+0x1a2b".
//
// Files are opened when the first of their places is asked for, and read as far as the answers
// need. Nothing here is thread-safe.
#pragma once

#include "tools/symbols/module_files.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace cachealloc::tools {

/// One function at a place. The texts live as long as the symbolizer.
struct SourceFrame {
    std::string_view function; ///< demangled; never empty
    std::string_view file;     ///< empty where no line is known
    std::uint32_t line = 0;    ///< 0 where it is not known
    bool inlined = false;      ///< into the frame that follows
};

/// What answers for a module come from.
enum class SymbolState : std::uint8_t {
    unused,     ///< no place of it was asked for yet
    lines,      ///< functions, files, lines and inlined calls
    functions,  ///< its symbol table: functions, no lines
    stripped,   ///< only the symbols it exports: the nearest function, with an offset
    missing,    ///< no file was found
    mismatch,   ///< the file there is another one: its build-id differs
    unreadable, ///< the file there is no program or library that can be read
};

/// What a report says about a module, once.
struct SymbolSource {
    std::string path; ///< as recorded
    SymbolState state = SymbolState::unused;
    bool verified = false;  ///< the build-id was recorded and is the file's
    std::size_t places = 0; ///< distinct places asked for
    std::string note;       ///< one line: what is lacking and why; empty where everything was found
};

class Symbolizer {
  public:
    using ModuleId = std::uint32_t;

    explicit Symbolizer(SymbolSearch search = {});
    ~Symbolizer();
    Symbolizer(const Symbolizer&) = delete;
    Symbolizer& operator=(const Symbolizer&) = delete;

    /// The number of the module with this path and build-id (bytes; empty: not recorded). Opens
    /// nothing. The same two give the same number. O(1).
    ModuleId module(std::string_view path, std::span<const std::uint8_t> build_id);

    /// The functions at the call that returns to `offset` in the module (an address as the module's
    /// file has it), innermost first, at least one. Valid as long as the symbolizer. The first
    /// question about a place reads the file, later ones are O(1).
    std::span<const SourceFrame> frames(ModuleId module, std::uint64_t offset);

    /// The frame of an address that lies in no module.
    std::span<const SourceFrame> frames_outside(std::uint64_t address);

    /// Every module, by its number.
    [[nodiscard]] std::vector<SymbolSource> sources() const;

  private:
    struct Module;
    struct Place {
        ModuleId module;
        std::uint64_t offset;
        friend bool operator==(const Place&, const Place&) = default;
    };
    struct PlaceHash {
        std::size_t operator()(const Place& place) const noexcept;
    };

    Module& opened(ModuleId id);
    std::string_view kept(std::string text);

    SymbolSearch search_;
    std::vector<std::unique_ptr<Module>> modules_;
    std::unordered_map<std::string, ModuleId> numbers_; ///< by path, NUL and build-id
    std::unordered_map<Place, std::vector<SourceFrame>, PlaceHash> places_;
    std::unordered_set<std::string> texts_;
};

/// "lines", "stripped" and so on.
[[nodiscard]] const char* symbol_state_name(SymbolState state);

} // namespace cachealloc::tools
