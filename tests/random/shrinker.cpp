#include "tests/random/shrinker.h"

#include "tests/random/judge.h"

#include <algorithm>

namespace random_programs {

namespace {

class Shrinker {
  public:
    Shrinker(Program program, const std::function<bool(const Program&)>& fails, int budget)
        : best_(std::move(program)), fails_(fails), budget_(budget) {}

    Program run() {
        bool smaller = true;
        while (smaller && budget_ > 0) {
            smaller = drop_runs();
            smaller = one_thread() || smaller;
            smaller = simpler_arguments() || smaller;
        }
        return std::move(best_);
    }

  private:
    bool take(Program candidate) {
        if (budget_ <= 0 || !legal(candidate)) return false;
        --budget_;
        if (!fails_(candidate)) return false;
        best_ = std::move(candidate);
        return true;
    }

    /// Runs of operations, long ones first.
    bool drop_runs() {
        bool any = false;
        for (std::size_t length = best_.operations.size(); length > 0; length /= 2) {
            for (std::size_t at = best_.operations.size(); at > 0;) {
                at = at > length ? at - length : 0;
                Program candidate = best_;
                const auto first = candidate.operations.begin() + static_cast<std::ptrdiff_t>(at);
                const std::size_t count = std::min(length, candidate.operations.size() - at);
                candidate.operations.erase(first, first + static_cast<std::ptrdiff_t>(count));
                any = take(std::move(candidate)) || any;
                at = std::min(at, best_.operations.size());
            }
        }
        // Two at a time that only make sense together: an object and its only use.
        for (std::size_t a = 0; a < best_.operations.size(); ++a) {
            for (std::size_t b = a + 1; b < best_.operations.size(); ++b) {
                Program candidate = best_;
                candidate.operations.erase(candidate.operations.begin() +
                                           static_cast<std::ptrdiff_t>(b));
                candidate.operations.erase(candidate.operations.begin() +
                                           static_cast<std::ptrdiff_t>(a));
                if (take(std::move(candidate))) {
                    any = true;
                    b = a;
                }
            }
        }
        return any;
    }

    bool one_thread() {
        bool any = false;
        for (int thread = 1; thread < kThreads; ++thread) {
            Program candidate = best_;
            bool there = false;
            for (Operation& o : candidate.operations) {
                there = there || o.thread == thread;
                if (o.thread == thread) o.thread = 0;
            }
            any = (there && take(std::move(candidate))) || any;
        }
        return any;
    }

    bool simpler_arguments() {
        bool any = false;
        for (std::size_t i = 0; i < best_.operations.size(); ++i) {
            const std::string_view kinds = arguments_of(best_.operations[i].verb);
            for (std::size_t k = 0; k < kinds.size(); ++k) {
                if (kinds[k] != 'n' && kinds[k] != 't') continue;
                for (const std::int64_t simple :
                     {std::int64_t{0}, std::int64_t{1}, std::int64_t{512}}) {
                    if (best_.operations[i].args[k] <= simple) break;
                    Program candidate = best_;
                    candidate.operations[i].args[k] = simple;
                    if (take(std::move(candidate))) {
                        any = true;
                        break;
                    }
                }
            }
        }
        return any;
    }

    Program best_;
    const std::function<bool(const Program&)>& fails_;
    int budget_;
};

} // namespace

Program shrink(Program program, const std::function<bool(const Program&)>& fails, int budget) {
    return Shrinker(std::move(program), fails, budget).run();
}

} // namespace random_programs
