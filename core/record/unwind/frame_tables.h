// The unwind tables of one loaded object: which rule holds at a place of its code.
//
// Read as if hostile: every byte is looked for in the object's readable segments first, and what
// makes no sense is Shape::complex.
#pragma once

#include "core/record/unwind/frame_program.h"
#include "core/record/unwind/frame_rule.h"
#include "core/record/unwind/table_reader.h"
#include "core/record/unwind/unwind_platform.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cachealloc {

class FrameTables {
  public:
    /// The tables of an object in this process, which must stay loaded meanwhile.
    explicit FrameTables(const CodeObject& object);
    /// Of bytes anywhere; `header` is the address of .eh_frame_hdr in them.
    FrameTables(std::span<const TableBytes> segments, std::uintptr_t header);

    /// The rule in the frame of a call that returns to `pc`. O(log functions), no allocation.
    FrameRule rule(std::uintptr_t pc) const;

  private:
    static constexpr std::size_t kSegments = 8;

    void add(const TableBytes& segment);
    const TableBytes* around(std::uintptr_t address) const;
    std::uintptr_t find_entry(std::uintptr_t place) const;
    FrameRule run_entry(std::uintptr_t entry, std::uintptr_t place) const;
    bool read_common(TableReader reader, FrameCommon& common, TableReader& instructions,
                     bool& augmented) const;

    std::array<TableBytes, kSegments> segments_;
    std::size_t count_ = 0;
    std::uintptr_t header_ = 0;
};

} // namespace cachealloc
