// The stacks of a recording, with names.
#pragma once

#include "tools/symbols/symbolizer.h"
#include "tools/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace cachealloc::tools {

/// A place in a module's file; `module` is null for "[truncated]" and for an address in no module,
/// which `offset` then is. Inlined frames have the place that they are inlined into.
struct FramePlace {
    const Module* module = nullptr;
    std::uint64_t offset = 0; ///< of the return address
};

/// Names stacks when they are asked for, each once.
///
/// Equal functions at equal lines have one number, wherever they were called from, so that tables
/// of frames stay small. Frames of the recorder's own library are left out. A stack that was cut
/// ends in the frame "[truncated]". Where code was loaded or unloaded at about the time of the
/// stack, so that another module may have been meant, the name ends in " [module changed]".
class StackSymbols {
  public:
    using FrameId = std::uint32_t;

    /// `trace` must live longer. Without `symbols`, no file is opened and frames are called
    /// "libfoo.so+0x1a2b".
    explicit StackSymbols(const Trace& trace, SymbolSearch search = {}, bool symbols = true);

    /// The frames of the stack with that number, innermost first, inlined ones included; none for
    /// 0 and for numbers that are no stack's. Valid as long as this object. O(frames) at first.
    std::span<const FrameId> frames(std::uint32_t stack) { return named(stack).ids; }
    /// Where each of these frames lies, in the same order.
    std::span<const FramePlace> places(std::uint32_t stack) { return named(stack).places; }
    /// A frame by its number, which must come from frames().
    [[nodiscard]] const SourceFrame& frame(FrameId id) const { return frames_[id]; }
    /// Numbers go from 0 to this, exclusive.
    [[nodiscard]] std::size_t frame_count() const { return frames_.size(); }
    /// Where the names come from and what lacks, a module each.
    [[nodiscard]] std::vector<SymbolSource> sources() const { return symbolizer_.sources(); }

  private:
    struct Named {
        std::vector<FrameId> ids;
        std::vector<FramePlace> places;
    };
    struct FrameHash {
        std::size_t operator()(const SourceFrame* frame) const noexcept;
    };
    /// Texts are shared, so that equal ones have equal places.
    struct SameFrame {
        bool operator()(const SourceFrame* a, const SourceFrame* b) const noexcept;
    };

    const Named& named(std::uint32_t stack);
    void add(Named& stack, const SourceFrame& frame, const FramePlace& place);
    void add_place(Named& stack, std::uint64_t address, std::uint32_t modules);
    Symbolizer::ModuleId number_of(const Module& module);
    std::string_view kept(std::string text);

    const Trace& trace_;
    const bool symbols_;
    Symbolizer symbolizer_;
    std::unordered_map<const Module*, Symbolizer::ModuleId> modules_;
    std::unordered_map<std::uint32_t, Named> stacks_;
    std::deque<SourceFrame> frames_;
    std::unordered_map<const SourceFrame*, FrameId, FrameHash, SameFrame> ids_;
    std::unordered_set<std::string> texts_;
};

} // namespace cachealloc::tools
