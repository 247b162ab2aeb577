// How to get from one frame of a stack to the frame that called it.
//
// CFA is DWARF's canonical frame address: the stack pointer as it was before the call. In a frame
// that a rule can describe, the return address lies just below it.
#pragma once

#include <cstdint>

namespace cachealloc {

/// Packed into one word, so that threads may read it while another one learns it.
///
///     bits   0..7     8..23        24..39        40..63
///            shape    generation   rbp offset    CFA offset
///
/// No generation has the number 0, so that a word of 0 is no rule at all.
class FrameRule {
  public:
    /// The first four are what nearly all code has, and their bits say all about them: kFromRbp,
    /// kSavesRbp.
    enum class Shape : std::uint32_t {
        rsp,       ///< CFA = rsp + k, k >= 8; rbp is the caller's
        rbp,       ///< CFA = rbp + k, rbp is the caller's
        rsp_saved, ///< CFA = rsp + k, the caller's rbp lies at CFA + j, inside the frame
        rbp_saved, ///< CFA = rbp + k, the caller's rbp lies at CFA - 16
        rbp_deref, ///< CFA = *(rbp + k), the caller's rbp lies at rbp + j: a realigned stack
        end,       ///< no caller
        complex,   ///< not representable
    };
    static constexpr std::uint32_t kFromRbp = 1;
    static constexpr std::uint32_t kSavesRbp = 2;
    static constexpr std::uint32_t kPlainShapes = 4;
    static constexpr std::uint32_t kShapes = 7;

    constexpr FrameRule() = default;
    constexpr explicit FrameRule(std::uint64_t word) : word_(word) {}
    /// Without a generation; `complex` where the offsets are not as the shape wants them. Where rbp
    /// is the caller's its offset is that of the return address.
    constexpr FrameRule(Shape shape, std::int64_t cfa_offset, std::int64_t rbp_offset) {
        if (shape == Shape::rsp || shape == Shape::rbp) rbp_offset = -8;
        const bool fits = cfa_offset == cfa_offset << 40 >> 40 &&
                          rbp_offset == rbp_offset << 48 >> 48 &&
                          wanted(shape, cfa_offset, rbp_offset);
        word_ = fits ? static_cast<std::uint64_t>(shape) |
                           (static_cast<std::uint64_t>(rbp_offset) & 0xffff) << 24 |
                           static_cast<std::uint64_t>(cfa_offset) << 40
                     : static_cast<std::uint64_t>(Shape::complex);
    }
    static constexpr FrameRule complex() { return {Shape::complex, 0, 0}; }
    static constexpr FrameRule end() { return {Shape::end, 0, 0}; }

    constexpr FrameRule of_generation(std::uint16_t generation) const {
        return FrameRule((word_ & ~std::uint64_t{0xffff00}) | std::uint64_t{generation} << 8);
    }

    constexpr std::uint64_t word() const { return word_; }
    constexpr Shape shape() const { return static_cast<Shape>(word_ & 0xff); }
    /// Its shape if it is of that generation, else kShapes or more. So one comparison tells.
    constexpr std::uint32_t shape_in(std::uint16_t generation_now) const {
        return (static_cast<std::uint32_t>(word_) & 0xffffff) ^ std::uint32_t{generation_now} << 8;
    }
    constexpr std::uint16_t generation() const { return static_cast<std::uint16_t>(word_ >> 8); }
    constexpr std::int64_t cfa_offset() const { return static_cast<std::int64_t>(word_) >> 40; }
    constexpr std::int64_t rbp_offset() const {
        return static_cast<std::int16_t>(static_cast<std::uint16_t>(word_ >> 24));
    }
    friend constexpr bool operator==(FrameRule, FrameRule) = default;

  private:
    static constexpr bool wanted(Shape shape, std::int64_t cfa_offset, std::int64_t rbp_offset) {
        switch (shape) {
        case Shape::rsp:
            return cfa_offset >= 8;
        case Shape::rsp_saved:
            return rbp_offset >= -cfa_offset && rbp_offset <= -16;
        case Shape::rbp_saved:
            return rbp_offset == -16;
        default:
            return true;
        }
    }

    std::uint64_t word_ = 0;
};

} // namespace cachealloc
