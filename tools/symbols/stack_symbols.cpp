#include "tools/symbols/stack_symbols.h"

#include <array>
#include <cstdio>
#include <functional>
#include <utility>

namespace cachealloc::tools {
namespace {

std::string place_name(const ModuleMatch& match) {
    std::array<char, 24> offset;
    std::snprintf(offset.data(), offset.size(), "+0x%llx",
                  static_cast<unsigned long long>(match.offset));
    std::string name(file_name(match.module->path));
    return name += offset.data();
}

} // namespace

std::size_t StackSymbols::FrameHash::operator()(const SourceFrame* frame) const noexcept {
    constexpr std::size_t kMultiplier = 0x9e3779b97f4a7c15;
    const std::hash<const void*> hash;
    std::size_t sum = hash(frame->function.data()) * kMultiplier;
    sum = (sum ^ hash(frame->file.data())) * kMultiplier;
    return (sum ^ frame->line) * kMultiplier ^ sum >> 32;
}

bool StackSymbols::SameFrame::operator()(const SourceFrame* a,
                                         const SourceFrame* b) const noexcept {
    return a->function.data() == b->function.data() && a->file.data() == b->file.data() &&
           a->line == b->line && a->inlined == b->inlined;
}

StackSymbols::StackSymbols(const Trace& trace, SymbolSearch search, bool symbols)
    : trace_(trace), symbols_(symbols), symbolizer_(std::move(search)) {}

const StackSymbols::Named& StackSymbols::named(std::uint32_t number) {
    const auto [place, added] = stacks_.try_emplace(number);
    Named& named = place->second;
    if (!added) {
        return named;
    }
    const Stack stack = trace_.stacks.find(number);
    for (const trace::Frame address : stack.frames) {
        add_place(named, address, stack.modules);
    }
    if (stack.cut) {
        add(named, {kept("[truncated]"), kept({}), 0, false}, {});
    }
    named.ids.shrink_to_fit();
    named.places.shrink_to_fit();
    return named;
}

void StackSymbols::add_place(Named& stack, std::uint64_t address, std::uint32_t modules) {
    const ModuleMatch match = trace_.modules.find(address, modules);
    if (match.module == nullptr) {
        add(stack, symbolizer_.frames_outside(address).front(), {nullptr, address});
        return;
    }
    if (match.module->own) {
        return;
    }
    const bool changed = match.fit == ModuleFit::changed;
    const SourceFrame unnamed{kept(symbols_ ? std::string() : place_name(match)), kept({}), 0,
                              false};
    const std::span<const SourceFrame> found =
        symbols_ ? symbolizer_.frames(number_of(*match.module), match.offset)
                 : std::span<const SourceFrame>(&unnamed, 1);
    for (SourceFrame frame : found) {
        if (changed) {
            frame.function = kept(std::string(frame.function) + " [module changed]");
        }
        add(stack, frame, {match.module, match.offset});
    }
}

void StackSymbols::add(Named& stack, const SourceFrame& frame, const FramePlace& place) {
    stack.places.push_back(place);
    const auto known = ids_.find(&frame);
    if (known != ids_.end()) {
        stack.ids.push_back(known->second);
        return;
    }
    const auto id = static_cast<FrameId>(frames_.size());
    frames_.push_back(frame);
    ids_.emplace(&frames_.back(), id);
    stack.ids.push_back(id);
}

Symbolizer::ModuleId StackSymbols::number_of(const Module& module) {
    const auto [place, added] = modules_.try_emplace(&module);
    if (added) {
        place->second = symbolizer_.module(module.path, module.build_id);
    }
    return place->second;
}

std::string_view StackSymbols::kept(std::string text) {
    return *texts_.insert(std::move(text)).first;
}

} // namespace cachealloc::tools
