#include "tools/trace/modules.h"

#include <algorithm>

namespace cachealloc::tools {

Modules::Modules(const TraceFile& file) {
    const TraceSection& section = file.section(trace::SectionType::modules);
    const std::vector<std::byte> content = file.load(trace::SectionType::modules);
    if (section.stride == 0) return;
    const std::size_t records = content.size() / section.stride;
    for (std::uint32_t i = 0; i < records; ++i) {
        const auto& record = *reinterpret_cast<const trace::ModuleRecord*>(
            &content[std::size_t{i} * section.stride]);
        switch (record.change) {
        case trace::ModuleChange::load:
            load(record, i);
            break;
        case trace::ModuleChange::unload:
            unload(record, i);
            break;
        default:
            ++damaged_;
        }
    }
    std::ranges::stable_sort(modules_, {}, &Module::start);
    std::uint64_t latest = 0;
    for (const Module& module : modules_)
        latest_end_.push_back(latest = std::max(latest, module.end));
}

void Modules::load(const trace::ModuleRecord& record, std::uint32_t number) {
    if (record.start >= record.end || record.path_bytes > sizeof(record.path) ||
        record.build_id_bytes > sizeof(record.build_id)) {
        ++damaged_;
        return;
    }
    std::string path(record.path, record.path_bytes);
    // It is printed: control characters could play tricks with a terminal.
    std::ranges::replace_if(
        path, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
    modules_.push_back({.bias = record.bias,
                        .start = record.start,
                        .end = record.end,
                        .loaded = number,
                        .unloaded = Module::kNever,
                        .own = (record.flags & trace::kOwnModule) != 0,
                        .path = std::move(path),
                        .build_id = {record.build_id, record.build_id + record.build_id_bytes}});
}

void Modules::unload(const trace::ModuleRecord& record, std::uint32_t number) {
    // The latest load there that is still in: unloads are rare, so a search from the end will do.
    for (auto module = modules_.rbegin(); module != modules_.rend(); ++module) {
        if (module->start == record.start && module->unloaded == Module::kNever) {
            module->unloaded = number;
            return;
        }
    }
    ++damaged_;
}

ModuleMatch Modules::find(std::uint64_t address, std::uint32_t records) const {
    ModuleMatch best;
    const auto after = std::ranges::upper_bound(modules_, address, {}, &Module::start);
    for (auto at = static_cast<std::size_t>(after - modules_.begin()); at-- > 0;) {
        if (latest_end_[at] <= address) break;
        const Module& module = modules_[at];
        if (address >= module.end) continue;
        const bool loaded = module.loaded < records && module.unloaded >= records;
        if (loaded || best.module == nullptr || module.loaded < best.module->loaded)
            best = {&module, address - module.bias, ModuleFit::changed};
        if (loaded) {
            best.fit = ModuleFit::exact;
            break;
        }
    }
    return best;
}

} // namespace cachealloc::tools
