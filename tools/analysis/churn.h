#pragma once

#include "tools/analysis/history.h"

#include <array>
#include <cstdint>

namespace cachealloc::tools {

/// What came and went of the sizes [2^n, 2^(n+1)).
struct ChurnClass {
    std::uint64_t allocations = 0;
    std::uint64_t frees = 0;
    std::uint64_t bytes = 0;     ///< allocated, as asked for
    std::uint64_t lifetimes = 0; ///< frees of which the allocation's time is known
    double lifetime_ticks = 0;   ///< their sum

    [[nodiscard]] double mean_lifetime() const {
        return lifetimes == 0 ? 0 : lifetime_ticks / static_cast<double>(lifetimes);
    }
};

/// How much memory of which sizes is allocated and freed.
class Churn : public HistoryVisitor {
  public:
    /// `device` is an ordinal, or -1 for all.
    explicit Churn(int device = -1) : device_(device) {}

    void on_event(const Event& event, const State& state, const Block* ended) override;

    /// By n. Only what takes up memory of a device counts.
    [[nodiscard]] const std::array<ChurnClass, 64>& classes() const { return classes_; }
    [[nodiscard]] ChurnClass total() const;

  private:
    int device_;
    std::array<ChurnClass, 64> classes_{};
};

} // namespace cachealloc::tools
