// The frames of recorded stacks as reports show them: in brief, and as keys to compare by.
#pragma once

#include "tools/symbols/stack_symbols.h"
#include "tools/trace/trace.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace cachealloc::tools {

/// One function of a stack, as it is shown.
struct NamedFrame {
    std::string function; ///< demangled, or "libfoo.so+0x1a2b"
    std::string file{};   ///< empty where no line is known
    std::uint32_t line = 0;
    std::string module{};     ///< the path; empty outside all modules
    std::string build_id{};   ///< hexadecimal
    std::uint64_t offset = 0; ///< of the return address, as the module's file has it
    bool inlined = false;     ///< into the frame that follows
    bool changed = false;     ///< modules came or went there: it may be another function
    bool cuda = false;        ///< of the CUDA runtime or driver
    bool common = false;      ///< in more than a quarter of the recording's stacks
};

/// Names stacks, each once. See StackSymbols for what is left out and added.
class StackNames {
  public:
    /// Without `symbols` no file is opened: frames are module and offset.
    StackNames(const Trace& trace, bool symbols, SymbolSearch search = {});

    /// Innermost first; empty where no stack was recorded. Valid as long as this object.
    const std::vector<NamedFrame>& frames(std::uint32_t stack);
    /// The three or four frames that tell most, innermost first, in at most `width` columns:
    /// "make_buffer (buffers.cpp:12) < step < main". Frames of CUDA, of the C library's start-up
    /// and of interpreters are left out where others are left, and so are those that most stacks
    /// share (a library's own allocator, say). Of a function's scopes the last is kept.
    std::string brief(std::uint32_t stack, std::size_t width);
    /// Equal for equal stacks of two recordings: functions where they are known, else build-id and
    /// offset. Empty where no stack was recorded.
    std::string key(std::uint32_t stack);
    /// What could not be found, a line each.
    [[nodiscard]] std::vector<std::string> notes() const;

  private:
    void find_common();

    const Trace& trace_;
    StackSymbols symbols_;
    std::unordered_set<std::uint64_t> common_; ///< return addresses
    std::unordered_map<std::uint32_t, std::vector<NamedFrame>> named_;
};

/// "make_buffer (buffers.cpp:12)", or "make_buffer (app+0x1a2b)" where no line is known.
[[nodiscard]] std::string frame_text(const NamedFrame& frame);

} // namespace cachealloc::tools
