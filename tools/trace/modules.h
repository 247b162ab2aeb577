#pragma once

#include "tools/trace/trace_file.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cachealloc::tools {

/// A program or library while it was loaded.
struct Module {
    std::uint64_t bias = 0;
    std::uint64_t start = 0; ///< [start, end)
    std::uint64_t end = 0;
    std::uint32_t loaded = 0;   ///< ModuleRecords before its load
    std::uint32_t unloaded = 0; ///< ModuleRecords before its unload, or kNever
    bool own = false;           ///< the recorder's library
    std::string path;
    std::vector<std::uint8_t> build_id;

    static constexpr std::uint32_t kNever = ~std::uint32_t{0};
};

enum class ModuleFit : std::uint8_t {
    none,    ///< no module was ever known there
    exact,   ///< it was loaded when the stack was captured
    changed, ///< modules came or went there at about that time: the answer may be wrong
};

struct ModuleMatch {
    const Module* module = nullptr;
    std::uint64_t offset = 0; ///< the address as the module's file has it
    ModuleFit fit = ModuleFit::none;
};

/// The log of loads and unloads.
class Modules {
  public:
    explicit Modules(const TraceFile& file);

    /// The module of `address` in a stack that was first seen after `records` ModuleRecords.
    /// O(log modules) where modules do not overlap.
    [[nodiscard]] ModuleMatch find(std::uint64_t address, std::uint32_t records) const;
    /// All of them, by their start.
    [[nodiscard]] const std::vector<Module>& all() const { return modules_; }
    /// Records that could not be used.
    [[nodiscard]] std::uint64_t damaged() const { return damaged_; }

  private:
    void load(const trace::ModuleRecord& record, std::uint32_t number);
    void unload(const trace::ModuleRecord& record, std::uint32_t number);

    std::vector<Module> modules_;
    std::vector<std::uint64_t> latest_end_; ///< the largest end of modules up to here
    std::uint64_t damaged_ = 0;
};

} // namespace cachealloc::tools
