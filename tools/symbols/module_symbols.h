// One module's file, opened: what it knows about its addresses.
#pragma once

#include "tools/symbols/debug_lines.h"
#include "tools/symbols/elf_symbols.h"
#include "tools/symbols/module_files.h"

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cachealloc::tools {

class ModuleSymbols {
  public:
    enum class Failure : std::uint8_t { none, missing, mismatch, unreadable };

    /// Looks for the module's file and opens the first with its build-id (any, where none was
    /// recorded). Reads neither symbols nor debug information yet.
    ModuleSymbols(const SymbolSearch& search, std::string_view path,
                  std::span<const std::uint8_t> build_id);
    ~ModuleSymbols() = default;
    ModuleSymbols(const ModuleSymbols&) = delete;
    ModuleSymbols& operator=(const ModuleSymbols&) = delete;

    [[nodiscard]] Failure failure() const { return failure_; }
    /// The file in use, or the one that was refused; empty if none was found.
    [[nodiscard]] const std::string& file() const { return file_; }
    /// The build-id of that file, in hexadecimal.
    [[nodiscard]] const std::string& file_build_id() const { return file_build_id_; }
    [[nodiscard]] bool verified() const { return verified_; }

    // What follows is for modules whose failure() is none.

    /// Whether there is debug information; reads it at first use.
    bool has_lines();
    /// The symbol table, read at first use.
    const ElfSymbols& symbols();
    /// The functions at a place (an address as the file has it), innermost first; may be none.
    std::vector<RawFrame> frames(std::uint64_t place);

  private:
    struct EndSession {
        void operator()(Dwfl* session) const { dwfl_end(session); }
    };

    Failure open(OpenFile file, std::span<const std::uint8_t> build_id);
    Failure ask_servers(std::string_view path, std::span<const std::uint8_t> build_id);
    Failure accept(Dwfl_Module* module, std::span<const std::uint8_t> build_id);
    void start_session();

    std::string debug_path_;
    char* debug_path_text_ = nullptr; ///< what the callbacks point to
    Dwfl_Callbacks callbacks_{};
    std::unique_ptr<Dwfl, EndSession> session_;
    Dwfl_Module* module_ = nullptr;
    std::uint64_t bias_ = 0; ///< address in the session less address in the file
    std::string file_;
    std::string file_build_id_;
    bool verified_ = false;
    Failure failure_ = Failure::missing;
    bool lines_read_ = false;
    std::uint64_t lines_bias_ = 0;
    std::optional<DebugLines> lines_;
    std::optional<ElfSymbols> symbols_;
};

} // namespace cachealloc::tools
