#include "core/record/unwind/frame_program.h"

namespace cachealloc {

namespace {

enum Column : std::uint64_t { kRbp = 6, kRsp = 7, kReturnAddress = 16 };

enum Opcode : std::uint8_t {
    kNop = 0x00,
    kSetLoc = 0x01,
    kAdvanceLoc1 = 0x02,
    kAdvanceLoc2 = 0x03,
    kAdvanceLoc4 = 0x04,
    kOffsetExtended = 0x05,
    kRestoreExtended = 0x06,
    kUndefined = 0x07,
    kSameValue = 0x08,
    kRegister = 0x09,
    kRememberState = 0x0a,
    kRestoreState = 0x0b,
    kDefCfa = 0x0c,
    kDefCfaRegister = 0x0d,
    kDefCfaOffset = 0x0e,
    kDefCfaExpression = 0x0f,
    kExpression = 0x10,
    kOffsetExtendedSf = 0x11,
    kDefCfaSf = 0x12,
    kDefCfaOffsetSf = 0x13,
    kValOffset = 0x14,
    kValOffsetSf = 0x15,
    kValExpression = 0x16,
    kGnuArgsSize = 0x2e,
    kGnuNegativeOffsetExtended = 0x2f,
    // These three hold their operand in the lower six bits.
    kAdvanceLoc = 0x40,
    kOffset = 0x80,
    kRestore = 0xc0,
};

// Of expressions.
constexpr std::uint8_t kOpBreg6 = 0x76;
constexpr std::uint8_t kOpDeref = 0x06;

} // namespace

FrameProgram::Saved& FrameProgram::saved(Row& row, std::uint64_t column) const {
    switch (column) {
    case kRbp:
        return row.rbp;
    case kRsp:
        return row.rsp;
    case kReturnAddress:
        return row.return_address;
    default:
        return row.other;
    }
}

void FrameProgram::save(std::uint64_t column, Saved::Where where, std::int64_t offset) {
    saved(row_, column) = {where, offset};
}

// Wraps around like the processor's own arithmetic; nonsense does not fit a rule later.
std::int64_t FrameProgram::factored(std::uint64_t offset) const {
    return static_cast<std::int64_t>(offset * static_cast<std::uint64_t>(common_.data_align));
}

bool FrameProgram::run_common(TableReader instructions) {
    while (!instructions.at_end()) {
        if (!step(instructions)) return false;
    }
    initial_ = row_;
    return instructions.ok();
}

bool FrameProgram::run(TableReader instructions, std::uintptr_t begin, std::uintptr_t place) {
    location_ = begin;
    while (!instructions.at_end()) {
        const Row before = row_;
        const std::uintptr_t from = location_;
        if (!step(instructions)) return false;
        if (location_ < from) return false;
        if (location_ > place) {
            row_ = before;
            return instructions.ok();
        }
    }
    return instructions.ok();
}

bool FrameProgram::step(TableReader& reader) {
    const auto opcode = reader.fixed<std::uint8_t>();
    const std::uint8_t operand = opcode & 0x3f;
    switch (opcode & 0xc0) {
    case kAdvanceLoc:
        location_ += operand * common_.code_align;
        return true;
    case kOffset:
        save(operand, Saved::Where::at_cfa, factored(reader.uleb()));
        return true;
    case kRestore:
        saved(row_, operand) = saved(initial_, operand);
        return true;
    default:
        return extended_step(reader, opcode);
    }
}

bool FrameProgram::extended_step(TableReader& reader, std::uint8_t opcode) {
    using Where = Saved::Where;
    std::uint64_t column = 0;
    switch (opcode) {
    case kNop:
        return true;
    case kSetLoc:
        location_ = reader.pointer(common_.pointer_encoding, 0);
        return true;
    case kAdvanceLoc1:
        location_ += reader.fixed<std::uint8_t>() * common_.code_align;
        return true;
    case kAdvanceLoc2:
        location_ += reader.fixed<std::uint16_t>() * common_.code_align;
        return true;
    case kAdvanceLoc4:
        location_ += reader.fixed<std::uint32_t>() * common_.code_align;
        return true;
    case kOffsetExtended:
        column = reader.uleb();
        save(column, Where::at_cfa, factored(reader.uleb()));
        return true;
    case kOffsetExtendedSf:
        column = reader.uleb();
        save(column, Where::at_cfa, factored(static_cast<std::uint64_t>(reader.sleb())));
        return true;
    case kGnuNegativeOffsetExtended:
        column = reader.uleb();
        save(column, Where::at_cfa, factored(-reader.uleb()));
        return true;
    case kRestoreExtended:
        column = reader.uleb();
        saved(row_, column) = saved(initial_, column);
        return true;
    case kUndefined:
        save(reader.uleb(), Where::undefined, 0);
        return true;
    case kSameValue:
        save(reader.uleb(), Where::same, 0);
        return true;
    case kRegister:
    case kValOffset:
        column = reader.uleb();
        reader.uleb();
        save(column, Where::elsewhere, 0);
        return true;
    case kValOffsetSf:
        column = reader.uleb();
        reader.sleb();
        save(column, Where::elsewhere, 0);
        return true;
    case kExpression:
        column = reader.uleb();
        set_expression(column, reader.part(reader.uleb()));
        return true;
    case kValExpression:
        column = reader.uleb();
        reader.skip(reader.uleb());
        save(column, Where::elsewhere, 0);
        return true;
    case kRememberState:
        if (remembered_count_ == kRemembered) return false;
        remembered_[remembered_count_++] = row_;
        return true;
    case kRestoreState:
        if (remembered_count_ == 0) return false;
        row_ = remembered_[--remembered_count_];
        return true;
    case kGnuArgsSize: // concerns landing pads only
        reader.uleb();
        return true;
    default:
        return define_cfa(reader, opcode);
    }
}

bool FrameProgram::define_cfa(TableReader& reader, std::uint8_t opcode) {
    switch (opcode) {
    case kDefCfa:
        set_cfa_register(reader.uleb());
        row_.cfa.offset = static_cast<std::int64_t>(reader.uleb());
        return true;
    case kDefCfaSf:
        set_cfa_register(reader.uleb());
        row_.cfa.offset = factored(static_cast<std::uint64_t>(reader.sleb()));
        return true;
    case kDefCfaRegister:
        set_cfa_register(reader.uleb());
        return true;
    case kDefCfaOffset:
        row_.cfa.offset = static_cast<std::int64_t>(reader.uleb());
        return true;
    case kDefCfaOffsetSf:
        row_.cfa.offset = factored(static_cast<std::uint64_t>(reader.sleb()));
        return true;
    case kDefCfaExpression:
        set_cfa_expression(reader.part(reader.uleb()));
        return true;
    default:
        return false;
    }
}

void FrameProgram::set_cfa_register(std::uint64_t column) {
    row_.cfa.base = column == kRsp   ? Cfa::Base::rsp
                    : column == kRbp ? Cfa::Base::rbp
                                     : Cfa::Base::other;
}

void FrameProgram::set_cfa_expression(TableReader expression) {
    row_.cfa = {Cfa::Base::other, 0};
    if (expression.fixed<std::uint8_t>() != kOpBreg6) return;
    const std::int64_t offset = expression.sleb();
    const bool deref = expression.fixed<std::uint8_t>() == kOpDeref;
    if (deref && expression.ok() && expression.at_end()) row_.cfa = {Cfa::Base::deref_rbp, offset};
}

void FrameProgram::set_expression(std::uint64_t column, TableReader expression) {
    const bool at_rbp = expression.fixed<std::uint8_t>() == kOpBreg6;
    const std::int64_t offset = expression.sleb();
    const bool whole = at_rbp && expression.ok() && expression.at_end();
    save(column, whole ? Saved::Where::at_rbp : Saved::Where::elsewhere, offset);
}

FrameRule FrameProgram::rule() const {
    using Shape = FrameRule::Shape;
    using Where = Saved::Where;
    const Cfa& cfa = row_.cfa;
    if (common_.signal_frame || row_.rsp.where != Where::same) return FrameRule::complex();
    if (row_.return_address.where == Where::undefined) return FrameRule::end();
    if (row_.return_address.where != Where::at_cfa || row_.return_address.offset != -8)
        return FrameRule::complex();
    const bool same = row_.rbp.where == Where::same;
    if (!same &&
        row_.rbp.where != (cfa.base == Cfa::Base::deref_rbp ? Where::at_rbp : Where::at_cfa))
        return FrameRule::complex();
    switch (cfa.base) {
    case Cfa::Base::rsp:
        return {same ? Shape::rsp : Shape::rsp_saved, cfa.offset, row_.rbp.offset};
    case Cfa::Base::rbp:
        return {same ? Shape::rbp : Shape::rbp_saved, cfa.offset, row_.rbp.offset};
    case Cfa::Base::deref_rbp:
        if (same) return FrameRule::complex();
        return {Shape::rbp_deref, cfa.offset, row_.rbp.offset};
    default:
        return FrameRule::complex();
    }
}

} // namespace cachealloc
