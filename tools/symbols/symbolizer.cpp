#include "tools/symbols/symbolizer.h"

#include "tools/symbols/module_symbols.h"

#include <array>
#include <cstdio>
#include <utility>

namespace cachealloc::tools {
namespace {

/// Addresses in no module are kept as places of this one.
constexpr Symbolizer::ModuleId kOutside = ~Symbolizer::ModuleId{0};

constexpr std::array<const char*, 7> kStateNames = {"unused",  "lines",    "functions", "stripped",
                                                    "missing", "mismatch", "unreadable"};

std::string with_offset(std::string_view name, std::uint64_t offset) {
    std::array<char, 24> text;
    std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(offset));
    std::string result(name);
    result += name.empty() ? "" : "+";
    return result += text.data();
}

} // namespace

struct Symbolizer::Module {
    std::string path;
    std::vector<std::uint8_t> build_id;
    std::unique_ptr<ModuleSymbols> symbols; ///< null until used
    SymbolState state = SymbolState::unused;
    std::size_t places = 0;

    void open(const SymbolSearch& search);
    [[nodiscard]] std::string note() const;
};

void Symbolizer::Module::open(const SymbolSearch& search) {
    symbols = std::make_unique<ModuleSymbols>(search, path, build_id);
    switch (symbols->failure()) {
    case ModuleSymbols::Failure::missing:
        state = SymbolState::missing;
        break;
    case ModuleSymbols::Failure::mismatch:
        state = SymbolState::mismatch;
        break;
    case ModuleSymbols::Failure::unreadable:
        state = SymbolState::unreadable;
        break;
    case ModuleSymbols::Failure::none:
        state = symbols->has_lines()            ? SymbolState::lines
                : symbols->symbols().complete() ? SymbolState::functions
                                                : SymbolState::stripped;
        break;
    }
}

std::string Symbolizer::Module::note() const {
    const std::string id = build_id.empty() ? "" : ", build-id " + hexadecimal(build_id);
    switch (state) {
    case SymbolState::unused:
        return {};
    case SymbolState::lines:
        return build_id.empty() ? "no build-id was recorded: not known to be the file that ran"
                                : std::string();
    case SymbolState::functions:
        return "no line numbers: no debug information found" + id;
    case SymbolState::stripped:
        return "only exported functions: it is stripped, and no debug information was found" + id;
    case SymbolState::missing:
        return "no file found" + id;
    case SymbolState::mismatch:
        return symbols->file() + " is another build (build-id " +
               (symbols->file_build_id().empty() ? "none" : symbols->file_build_id()) +
               "), not used" + id;
    case SymbolState::unreadable:
        return symbols->file() + " is no program or library for x86-64 that can be read" + id;
    }
    return {};
}

std::size_t Symbolizer::PlaceHash::operator()(const Place& place) const noexcept {
    constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;
    const std::uint64_t mixed = (place.offset ^ std::uint64_t{place.module} << 48) * kMultiplier;
    return static_cast<std::size_t>(mixed ^ mixed >> 32);
}

Symbolizer::Symbolizer(SymbolSearch search) : search_(std::move(search)) {}
Symbolizer::~Symbolizer() = default;

Symbolizer::ModuleId Symbolizer::module(std::string_view path,
                                        std::span<const std::uint8_t> build_id) {
    std::string key(path);
    key += '\0';
    key.append(build_id.begin(), build_id.end());
    const auto [place, added] =
        numbers_.try_emplace(std::move(key), static_cast<ModuleId>(modules_.size()));
    if (added) {
        auto module = std::make_unique<Module>();
        module->path = path;
        module->build_id.assign(build_id.begin(), build_id.end());
        modules_.push_back(std::move(module));
    }
    return place->second;
}

Symbolizer::Module& Symbolizer::opened(ModuleId id) {
    Module& module = *modules_[id];
    if (module.symbols == nullptr) {
        module.open(search_);
    }
    return module;
}

std::string_view Symbolizer::kept(std::string text) {
    return *texts_.insert(std::move(text)).first;
}

std::span<const SourceFrame> Symbolizer::frames(ModuleId id, std::uint64_t offset) {
    if (id >= modules_.size()) {
        return frames_outside(offset);
    }
    const auto [place, added] = places_.try_emplace(Place{id, offset});
    std::vector<SourceFrame>& frames = place->second;
    if (!added) {
        return frames;
    }
    Module& module = opened(id);
    ++module.places;
    std::vector<RawFrame> found;
    if (module.symbols->failure() == ModuleSymbols::Failure::none) {
        found = module.symbols->frames(offset - 1);
    }
    if (found.empty()) {
        found.emplace_back();
    }
    frames.reserve(found.size());
    for (RawFrame& raw : found) {
        if (raw.function.empty()) {
            raw.function =
                with_offset(module.path.empty() ? "[unnamed]" : file_name(module.path), offset);
        }
        frames.push_back(
            {kept(std::move(raw.function)), kept(std::move(raw.file)), raw.line, raw.inlined});
    }
    return frames;
}

std::span<const SourceFrame> Symbolizer::frames_outside(std::uint64_t address) {
    const auto [place, added] = places_.try_emplace(Place{kOutside, address});
    if (added) {
        place->second.push_back({kept(with_offset({}, address)), {}, 0, false});
    }
    return place->second;
}

std::vector<SymbolSource> Symbolizer::sources() const {
    std::vector<SymbolSource> sources;
    sources.reserve(modules_.size());
    for (const auto& module : modules_) {
        SymbolSource source;
        source.path = module->path;
        source.state = module->state;
        source.verified = module->symbols != nullptr && module->symbols->verified();
        source.places = module->places;
        source.note = module->note();
        sources.push_back(std::move(source));
    }
    return sources;
}

const char* symbol_state_name(SymbolState state) {
    const auto index = static_cast<std::size_t>(state);
    return index < kStateNames.size() ? kStateNames[index] : "";
}

} // namespace cachealloc::tools
