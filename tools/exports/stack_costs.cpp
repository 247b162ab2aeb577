#include "tools/exports/stack_costs.h"

namespace cachealloc::tools {
namespace {

using Costs = std::map<std::uint32_t, StackCost>;

/// What was handed out in the window.
class AllocatedVisitor : public HistoryVisitor {
  public:
    explicit AllocatedVisitor(const ExportWindow& window) : window_(window) {}

    void on_event(const Event& event, const State& /*state*/, const Block* /*ended*/) override {
        done_ = done_ || window_.behind(event.time);
        if (!done_ && event.kind == trace::EventKind::alloc && trace::on_device(event.memory) &&
            window_.has_device(event.device) && !window_.before(event.time)) {
            StackCost& cost = costs[event.stack];
            cost.bytes += event.size;
            ++cost.count;
        }
    }
    [[nodiscard]] bool done() const override { return done_; }

    Costs costs;

  private:
    const ExportWindow& window_;
    bool done_ = false;
};

/// A moment is known by the number of events before it: an event changes the state, so that times
/// do not tell enough.
class MomentVisitor : public HistoryVisitor {
  public:
    MomentVisitor(const ExportWindow& window, const std::vector<std::uint8_t>& devices)
        : window_(window), devices_(devices) {}

    void on_start(const State& state) override { see(state, 0, true); }

    void on_event(const Event& event, const State& state, const Block* /*ended*/) override {
        done_ = done_ || window_.behind(event.time);
        if (!done_) {
            ++events_;
            // Before the window, the latest moment is where it starts.
            see(state, events_, window_.before(event.time));
        }
    }
    [[nodiscard]] bool done() const override { return done_; }

    std::uint64_t peak_moment = 0;
    std::uint64_t last_moment = 0;

  private:
    void see(const State& state, std::uint64_t moment, bool starts) {
        std::uint64_t live = 0;
        for (const std::uint8_t device : devices_) {
            live += state.device(device).live;
        }
        last_moment = moment;
        if (starts || live > peak_) {
            peak_ = live;
            peak_moment = moment;
        }
    }

    const ExportWindow& window_;
    const std::vector<std::uint8_t>& devices_;
    std::uint64_t events_ = 0;
    std::uint64_t peak_ = 0;
    bool done_ = false;
};

/// What is live at a moment.
class LiveVisitor : public HistoryVisitor {
  public:
    LiveVisitor(const ExportWindow& window, std::uint64_t moment)
        : window_(window), moment_(moment) {}

    void on_start(const State& state) override { take(state); }
    void on_event(const Event& /*event*/, const State& state, const Block* /*ended*/) override {
        ++events_;
        take(state);
    }
    /// The last moment is after what the events missed, too.
    void on_end(const State& state) override {
        if (events_ == moment_) {
            costs.clear();
            take(state);
        }
    }
    [[nodiscard]] bool done() const override { return events_ > moment_; }

    Costs costs;

  private:
    void take(const State& state) {
        if (events_ != moment_) {
            return;
        }
        state.live().for_each([this](const Place& /*place*/, const Block& block) {
            if (trace::on_device(block.memory) && window_.has_device(block.device)) {
                StackCost& cost = costs[block.stack];
                cost.bytes += block.size;
                ++cost.count;
            }
        });
    }

    const ExportWindow& window_;
    const std::uint64_t moment_;
    std::uint64_t events_ = 0;
};

} // namespace

Costs stack_costs(const ExportJob& job) {
    if (job.options.cost == ExportCost::allocated) {
        AllocatedVisitor visitor(job.window);
        job.history.visit(visitor);
        return std::move(visitor.costs);
    }
    const std::vector<std::uint8_t> devices = export_devices(job);
    MomentVisitor moments(job.window, devices);
    job.history.visit(moments);
    const bool peak = job.options.cost == ExportCost::peak;
    LiveVisitor live(job.window, peak ? moments.peak_moment : moments.last_moment);
    job.history.visit(live);
    return std::move(live.costs);
}

} // namespace cachealloc::tools
