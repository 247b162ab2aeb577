#include "tools/commands/stack_names.h"

#include "tools/commands/text.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace cachealloc::tools {

namespace {

constexpr std::size_t kBriefFrames = 4;

bool starts_with_any(std::string_view text, std::span<const std::string_view> heads) {
    return std::ranges::any_of(heads,
                               [&](std::string_view head) { return text.starts_with(head); });
}

/// Of the runtime or the driver: by their libraries, or by name where the runtime is linked in.
bool is_cuda(std::string_view module, std::string_view function) {
    static constexpr std::array<std::string_view, 2> kLibraries = {"libcudart", "libcuda.so"};
    static constexpr std::array<std::string_view, 2> kPrefixes = {"cudart::", "__cudart"};
    if (starts_with_any(base_name(module), kLibraries)) return true;
    if (starts_with_any(function, kPrefixes)) return true;
    // cudaMalloc, cudaMallocAsync_ptsz: an entry of the runtime.
    return function.size() > 4 && function.starts_with("cuda") && function[4] >= 'A' &&
           function[4] <= 'Z' && function.find_first_of("(:<") == std::string_view::npos;
}

/// Frames that are in every stack of a kind of program and tell nothing.
bool is_glue(const NamedFrame& frame) {
    static constexpr std::array<std::string_view, 7> kNames = {"_start",
                                                               "clone",
                                                               "clone3",
                                                               "__clone",
                                                               "start_thread",
                                                               "[truncated]",
                                                               "execute_native_thread_routine"};
    static constexpr std::array<std::string_view, 18> kHeads = {
        "__libc_start", "_PyEval_",     "PyEval_",       "_PyObject_",    "PyObject_",
        "_PyFunction_", "PyVectorcall", "_PyVectorcall", "cfunction_",    "method_vectorcall",
        "pyrun_",       "Py_Run",       "Py_Bytes",      "std::__invoke", "std::invoke",
        "std::thread",  "ffi_call",     "std::function"};
    static constexpr std::array<std::string_view, 4> kLibraries = {"libstdc++.so", "libc.so",
                                                                   "libpthread.so", "ld-linux"};
    const std::string function = short_function(frame.function);
    if (std::ranges::find(kNames, function) != kNames.end()) return true;
    if (function.find("+0x") != std::string::npos &&
        starts_with_any(base_name(frame.module), kLibraries))
        return true;
    return starts_with_any(function, kHeads);
}

std::string with_offset(std::string_view path, std::uint64_t offset) {
    return fmt::format("{}+{:#x}", base_name(path), offset);
}

} // namespace

std::string frame_text(const NamedFrame& frame) {
    if (frame.line != 0)
        return fmt::format("{} ({}:{})", frame.function, base_name(frame.file), frame.line);
    // Calls of one function are told apart by their places.
    const std::string place = with_offset(frame.module, frame.offset);
    if (frame.module.empty() || frame.function.starts_with(place)) return frame.function;
    return fmt::format("{} ({})", frame.function, place);
}

StackNames::StackNames(const Trace& trace, bool symbols, SymbolSearch search)
    : trace_(trace), symbols_(trace, std::move(search), symbols) {
    find_common();
}

void StackNames::find_common() {
    constexpr std::uint64_t kEnough = 8; // stacks, to say what is usual
    const std::uint64_t used = trace_.stacks.used();
    if (used < kEnough) return;
    std::unordered_map<std::uint64_t, std::uint64_t> counts;
    for (std::uint32_t number = 1; number <= trace_.stacks.largest(); ++number) {
        std::uint64_t last = 0; // a function that calls itself is there once
        for (const trace::Frame frame : trace_.stacks.find(number).frames) {
            if (frame != last) ++counts[frame];
            last = frame;
        }
    }
    for (const auto& [frame, count] : counts) {
        if (count > used / 4) common_.insert(frame);
    }
}

const std::vector<NamedFrame>& StackNames::frames(std::uint32_t stack) {
    const auto known = named_.find(stack);
    if (known != named_.end()) return known->second;
    const std::span<const StackSymbols::FrameId> ids = symbols_.frames(stack);
    const std::span<const FramePlace> places = symbols_.places(stack);
    std::vector<NamedFrame> frames;
    frames.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const SourceFrame& source = symbols_.frame(ids[i]);
        NamedFrame frame{.function = printable(source.function),
                         .file = printable(source.file),
                         .line = source.line,
                         .offset = places[i].offset,
                         .inlined = source.inlined};
        if (const Module* const module = places[i].module) {
            frame.module = module->path;
            frame.build_id = hexadecimal(module->build_id);
        }
        const std::uint64_t bias = places[i].module != nullptr ? places[i].module->bias : 0;
        frame.common = common_.contains(places[i].offset + bias);
        frame.cuda = is_cuda(frame.module, frame.function);
        frames.push_back(std::move(frame));
    }
    return named_.emplace(stack, std::move(frames)).first->second;
}

std::string StackNames::brief(std::uint32_t stack, std::size_t width) {
    const std::vector<NamedFrame>& all = frames(stack);
    if (all.empty()) return stack == 0 ? "(no stack)" : "(unreadable stack)";
    std::vector<const NamedFrame*> telling;
    for (const NamedFrame& frame : all) {
        if (!frame.cuda && !is_glue(frame)) telling.push_back(&frame);
    }
    if (telling.empty()) {
        for (const NamedFrame& frame : all)
            telling.push_back(&frame);
    }
    const auto common = [](const NamedFrame* frame) { return frame->common; };
    if (!std::ranges::all_of(telling, common)) std::erase_if(telling, common);
    if (telling.size() > kBriefFrames) telling.resize(kBriefFrames);
    // With the places of all calls where there is room, else with the first, which is enough to
    // find the others.
    std::string whole;
    std::string text;
    bool fits = true;
    for (const NamedFrame* const one : telling) {
        NamedFrame frame = *one;
        frame.function = last_scope(short_function(frame.function));
        const std::string with_place = frame_text(frame);
        if (whole.empty()) {
            whole = text = with_place;
            continue;
        }
        whole.append(" < ").append(with_place);
        fits = fits && text.size() + 3 + frame.function.size() <= width;
        if (fits) text.append(" < ").append(frame.function);
    }
    return whole.size() <= width ? whole : cut(text, width);
}

std::string StackNames::key(std::uint32_t stack) {
    std::string key;
    for (const NamedFrame& frame : frames(stack)) {
        const bool named = frame.function != with_offset(frame.module, frame.offset);
        if (named) {
            key += frame.function;
        } else {
            key += fmt::format("{}+{:#x}",
                               frame.build_id.empty() ? std::string(base_name(frame.module))
                                                      : frame.build_id,
                               frame.offset);
        }
        key += '\n';
    }
    return key;
}

std::vector<std::string> StackNames::notes() const {
    std::vector<std::string> notes;
    for (const SymbolSource& source : symbols_.sources()) {
        // Nobody has CUDA's debug information.
        if (source.places != 0 && !source.note.empty() && !is_cuda(source.path, {}))
            notes.push_back(fmt::format("{}: {}", printable(source.path), source.note));
    }
    return notes;
}

} // namespace cachealloc::tools
