#include "tests/fuzz/consume.h"

#include "tools/analysis/history.h"
#include "tools/trace/trace.h"

#include <stdexcept>

namespace cachealloc::tests {

namespace {

using namespace cachealloc::tools;

/// Looks up whatever an event names.
class Follow final : public HistoryVisitor {
  public:
    explicit Follow(const Trace& trace) : trace_(trace) {}
    void on_event(const Event& event, const State&, const Block*) override {
        const Stack stack = trace_.stacks.find(event.stack);
        for (const trace::Frame frame : stack.frames) {
            const ModuleMatch match = trace_.modules.find(frame, stack.modules);
            sum_ += match.module == nullptr ? match.offset : match.module->path.size();
        }
    }

  private:
    const Trace& trace_;
    std::uint64_t sum_ = 0;
};

} // namespace

bool consume(const std::string& path) {
    try {
        const Trace trace(path);
        History history(trace);
        Follow follow(trace);
        history.visit(follow);
    } catch (const TraceError& error) {
        const std::string line = error.what();
        if (line.empty() || line.find('\n') != std::string::npos)
            throw std::logic_error("an error of other than one line: " + line);
        return false;
    }
    return true;
}

} // namespace cachealloc::tests
