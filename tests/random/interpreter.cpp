#include "tests/random/interpreter.h"

#include "tests/random/kernels.h"
#include "tests/random/machine.h"
#include "tests/random/model.h"

#include <array>
#include <functional>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

namespace random_programs {

namespace {

/// A host thread that carries out one piece of work at a time, while whoever asked waits.
class Hand {
  public:
    Hand() : thread_([this] { loop(); }) {}
    ~Hand() {
        work_ = nullptr;
        begin_.release();
        thread_.join();
    }
    Hand(const Hand&) = delete;
    Hand& operator=(const Hand&) = delete;

    void run(const std::function<void()>& work) {
        work_ = &work;
        begin_.release();
        end_.acquire();
    }

  private:
    void loop() {
        (void)cudaSetDevice(0); // the driver's own calls need a context
        for (;;) {
            begin_.acquire();
            if (work_ == nullptr) return;
            (*work_)();
            end_.release();
        }
    }

    const std::function<void()>* work_ = nullptr;
    std::binary_semaphore begin_{0};
    std::binary_semaphore end_{0};
    std::thread thread_;
};

/// A program may go on after these fail: it lacks a block, or keeps one.
bool harmless(Verb verb) {
    return verb == Verb::malloc || verb == Verb::malloc_async || verb == Verb::free ||
           verb == Verb::free_async || verb == Verb::query || verb == Verb::query_event ||
           verb == Verb::publish || verb == Verb::fail;
}

std::int64_t stream_argument(const Operation& o) {
    const std::size_t at = arguments_of(o.verb).find('s');
    return at == std::string_view::npos ? kLegacy : o.args[at];
}

// Every thread at its own pace.
void run_freely(const Program& program, Machine& machine, std::span<std::int32_t> codes) {
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            (void)cudaSetDevice(0);
            for (std::size_t i = 0; i < program.operations.size() && i < codes.size(); ++i) {
                const Operation& o = program.operations[i];
                if (o.thread == thread) codes[i] = machine.run(o, -1);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
}

} // namespace

int interpret(const Program& program, std::span<std::int32_t> codes) {
    Machine machine;
    Model model(lean_of(program));
    std::array<std::unique_ptr<Hand>, kThreads> hands;
    if (cudaFree(nullptr) != cudaSuccess || !load_kernels()) return kCallFailed;
    if (program.free_running) {
        run_freely(program, machine, codes);
        return machine.clean_up();
    }
    bool failures = false; // were injected
    for (std::size_t i = 0; i < program.operations.size() && i < codes.size(); ++i) {
        const Operation& o = program.operations[i];
        const int capture = model.capture_at(stream_argument(o), o.thread);
        // Of memory in a stream's order, or one that the program leans on: it cannot go on without.
        const bool needed = (o.verb == Verb::free || o.verb == Verb::free_async) &&
                            (lean_of(program) != Lean::nothing || model.block_async(o.args[0]));
        const Verdict verdict = model.apply(o);
        const std::function<void()> work = [&] { codes[i] = machine.run(o, capture); };
        if (o.thread == 0) {
            work();
        } else {
            auto& hand = hands[static_cast<std::size_t>(o.thread)];
            if (hand == nullptr) hand = std::make_unique<Hand>();
            hand->run(work);
        }
        failures = failures || o.verb == Verb::fail;
        // An error that no careful program expects: it stops here, as it is.
        if (failures && codes[i] > 0 && codes[i] != verdict.code && (needed || !harmless(o.verb)))
            return kFine;
    }
    for (auto& hand : hands)
        hand.reset(); // their threads end
    return machine.clean_up();
}

} // namespace random_programs
