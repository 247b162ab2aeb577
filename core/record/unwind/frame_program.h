// The call frame instructions of one function (DWARF 5, 6.4; the GNU additions), run up to one
// place and read as a FrameRule.
//
// Invariant: whatever a FrameRule cannot say ends as Shape::complex, never as something near.
#pragma once

#include "core/record/unwind/frame_rule.h"
#include "core/record/unwind/table_reader.h"

#include <array>
#include <cstdint>

namespace cachealloc {

/// What the instructions of a function share with others.
struct FrameCommon {
    std::uint64_t code_align = 1;
    std::int64_t data_align = 1;
    std::uint8_t pointer_encoding = 0;
    bool signal_frame = false;
};

class FrameProgram {
  public:
    explicit FrameProgram(const FrameCommon& common) : common_(common) {}

    /// Runs the instructions that all functions of the group begin with. False: not understood.
    bool run_common(TableReader instructions);
    /// Runs those of the function that starts at `begin`, up to and including the ones for `place`.
    bool run(TableReader instructions, std::uintptr_t begin, std::uintptr_t place);
    /// What holds there.
    FrameRule rule() const;

  private:
    /// Where the caller's value of a register is.
    struct Saved {
        enum class Where : std::uint8_t { same, at_cfa, at_rbp, undefined, elsewhere };
        Where where = Where::same;
        std::int64_t offset = 0;
    };
    struct Cfa {
        enum class Base : std::uint8_t { none, rsp, rbp, deref_rbp, other };
        Base base = Base::none;
        std::int64_t offset = 0;
    };
    struct Row {
        Cfa cfa;
        Saved rbp;
        Saved rsp;
        Saved return_address;
        Saved other; ///< stands for the registers that no rule needs
    };
    static constexpr std::size_t kRemembered = 16;

    Saved& saved(Row& row, std::uint64_t column) const;
    bool step(TableReader& reader);
    bool extended_step(TableReader& reader, std::uint8_t opcode);
    bool define_cfa(TableReader& reader, std::uint8_t opcode);
    void save(std::uint64_t column, Saved::Where where, std::int64_t offset);
    void set_cfa_register(std::uint64_t column);
    void set_cfa_expression(TableReader expression);
    void set_expression(std::uint64_t column, TableReader expression);
    std::int64_t factored(std::uint64_t offset) const;

    const FrameCommon common_;
    Row row_;
    Row initial_;
    std::array<Row, kRemembered> remembered_;
    std::size_t remembered_count_ = 0;
    std::uintptr_t location_ = 0;
};

} // namespace cachealloc
