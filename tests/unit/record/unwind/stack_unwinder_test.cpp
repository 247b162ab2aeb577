// Every way to build a stack, walked and compared with libgcc's unwinder, frame by frame.
#include "core/record/unwind/stack_unwinder.h"

#include "core/record/unwind/stack_bounds.h"
#include "tests/unit/record/unwind/call_shapes.h"
#include "tests/unit/record/unwind/process_platform.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

using namespace cachealloc;
using namespace cachealloc::test;

namespace {

struct Outcome {
    std::uint64_t walked, unwound, differed;
};

std::atomic<int> g_asked{0}; // how often an address was new

UnwindPlatform counting_platform() {
    UnwindPlatform platform;
    platform.find_object = [](std::uintptr_t address, CodeObject& object) {
        ++g_asked;
        return find_object(address, object);
    };
    return platform;
}

// A StackUnwinder that compares each walk, and the last stack it has captured.
class Probe {
  public:
    explicit Probe(std::size_t depth = 200)
        : unwinder_(UnwinderChoice::automatic, counting_platform(), true), frames_(depth) {}

    // Allocates nothing: signal handlers call it.
    void capture() { size = unwinder_.capture(frames_.data(), frames_.size(), was_cut); }
    static void capture_at_bottom(void* probe) { static_cast<Probe*>(probe)->capture(); }

    Outcome outcome() const {
        auto counters = std::make_unique<trace::Counters>();
        unwinder_.publish(*counters);
        return {counters->stacks_walked, counters->stacks_unwound, counters->stacks_differed};
    }

    std::size_t size = 0;
    bool was_cut = false;

  private:
    StackUnwinder unwinder_;
    std::vector<trace::Frame> frames_;
};

void run(Probe& probe, std::vector<std::uint8_t> program) {
    Calls calls{program, Probe::capture_at_bottom, &probe};
    call_plain(calls);
}

[[gnu::noinline]] void recurse(Probe& probe, int depth) {
    volatile int left = depth; // after the call, too: else the compiler makes a loop of it
    if (depth == 0)
        probe.capture();
    else
        recurse(probe, depth - 1);
    left = left - 1;
}

} // namespace

TEST_CASE("Each shape of a frame is walked as libgcc unwinds it", "[unwind]") {
    const unsigned shape = GENERATE(range(0U, kCallShapes));
    Probe probe;
    for (std::size_t depth = 1; depth < 12; ++depth) {
        const std::vector<std::uint8_t> program(depth, static_cast<std::uint8_t>(shape));
        run(probe, program);
        run(probe, program);
    }
    const Outcome outcome = probe.outcome();
    INFO("shape " << shape);
    CHECK(outcome.walked == 22);
    CHECK(outcome.unwound == 0);
    CHECK(outcome.differed == 0);
}

TEST_CASE("Random stacks are walked as libgcc unwinds them", "[unwind]") {
    const std::uint32_t seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Probe probe;
    std::vector<std::vector<std::uint8_t>> programs(300);
    for (std::vector<std::uint8_t>& program : programs) {
        program.resize(random() % 40);
        for (std::uint8_t& shape : program)
            shape = static_cast<std::uint8_t>(random());
    }
    for (int i = 0; i < 2000; ++i)
        run(probe, programs[random() % programs.size()]);
    const Outcome outcome = probe.outcome();
    CHECK(outcome.walked == 2000);
    CHECK(outcome.differed == 0);
}

TEST_CASE("A stack deeper than there is room for is cut", "[unwind]") {
    Probe probe(64);
    recurse(probe, 10000);
    CHECK(probe.was_cut);
    CHECK(probe.size == 64);
    recurse(probe, 3);
    CHECK_FALSE(probe.was_cut);
    const Outcome outcome = probe.outcome();
    CHECK(outcome.walked == 2);
    CHECK(outcome.differed == 0);
}

TEST_CASE("A stack that fits exactly is not cut", "[unwind]") {
    Probe deep;
    recurse(deep, 5);
    const std::size_t frames = deep.size;
    Probe exact(frames);
    recurse(exact, 5);
    CHECK_FALSE(exact.was_cut);
    CHECK(exact.size == frames);
    Probe less(frames - 1);
    recurse(less, 5);
    CHECK(less.was_cut);
    CHECK(exact.outcome().differed + less.outcome().differed == 0);
}

TEST_CASE("Threads walk their own stacks at the same time", "[unwind]") {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    UnwindPlatform platform = process_platform();
    StackUnwinder unwinder(UnwinderChoice::automatic, platform, true);
    struct Job {
        StackUnwinder& unwinder;
        std::atomic<int>& wrong;
    } job{unwinder, wrong};
    for (unsigned number = 0; number < 3; ++number) {
        threads.emplace_back([&job, number] {
            std::mt19937 random(number);
            for (int i = 0; i < 1000; ++i) {
                std::vector<std::uint8_t> program(random() % 20);
                for (std::uint8_t& shape : program) // those that are not thread-safe left out
                    shape = static_cast<std::uint8_t>(random() % 10);
                Calls calls{program,
                            [](void* argument) {
                                Job& mine = *static_cast<Job*>(argument);
                                trace::Frame frames[64];
                                bool cut = false;
                                if (mine.unwinder.capture(frames, 64, cut) < 3) ++mine.wrong;
                            },
                            &job};
                call_plain(calls);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    auto counters = std::make_unique<trace::Counters>();
    unwinder.publish(*counters);
    CHECK(wrong == 0);
    CHECK(counters->stacks_walked == 3000);
    CHECK(counters->stacks_differed == 0);
}

namespace {
Probe* g_probe = nullptr;
void on_signal(int) {
    g_probe->capture();
}
} // namespace

TEST_CASE("A signal handler's stack is unwound in full", "[unwind]") {
    Probe probe;
    g_probe = &probe;
    stack_bounds(); // allocates at a thread's first call, which a handler may not
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = on_signal;
    SECTION("on the thread's stack") {}
    SECTION("on a stack of its own") {
        static char stack[1 << 16];
        const stack_t own{stack, 0, sizeof stack};
        REQUIRE(sigaltstack(&own, nullptr) == 0);
        action.sa_flags = SA_ONSTACK;
    }
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    raise(SIGUSR1);
    sigaction(SIGUSR1, &before, nullptr);
    const Outcome outcome = probe.outcome();
    CHECK(outcome.walked == 0);
    CHECK(outcome.unwound == 1);
    // Beyond the handler: the interrupted raise() and this test.
    CHECK(probe.size > 5);
}

TEST_CASE("Generated code without tables makes the stack be unwound in full", "[unwind]") {
    // push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret
    const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8,
                                  0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
    void* const page =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    std::memcpy(page, code, sizeof code);
    Probe probe;
    reinterpret_cast<void (*)(void (*)(void*), void*)>(page)(Probe::capture_at_bottom, &probe);
    munmap(page, 4096);
    CHECK(probe.outcome().walked == 0);
    CHECK(probe.outcome().unwound == 1);
    REQUIRE(probe.size >= 2);
}

namespace {
ucontext_t g_outside;
void fiber() {
    recurse(*g_probe, 3);
}
} // namespace

TEST_CASE("A fiber's stack is unwound in full", "[unwind]") {
    Probe probe;
    g_probe = &probe;
    std::vector<char> stack(1 << 16);
    ucontext_t inside;
    REQUIRE(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stack.data();
    inside.uc_stack.ss_size = stack.size();
    inside.uc_link = &g_outside;
    makecontext(&inside, fiber, 0);
    g_asked = 0;
    REQUIRE(swapcontext(&g_outside, &inside) == 0);
    CHECK(probe.outcome().walked == 0);
    CHECK(probe.outcome().unwound == 1);
    CHECK(probe.size >= 5);
    CHECK(g_asked == 0); // no walk was even tried
}

TEST_CASE("While code is being unloaded nothing is walked", "[unwind]") {
    StackUnwinder unwinder(UnwinderChoice::automatic, process_platform(), true);
    trace::Frame frames[64];
    bool cut = false;
    auto counters = std::make_unique<trace::Counters>();
    unwinder.before_unloading();
    CHECK(unwinder.capture(frames, 64, cut) > 3);
    unwinder.after_unloading(true);
    CHECK(unwinder.capture(frames, 64, cut) > 3);
    unwinder.publish(*counters);
    CHECK(counters->stacks_walked == 1);
    CHECK(counters->stacks_unwound == 1);
}

TEST_CASE("When the generations begin again, nothing old is believed", "[unwind]") {
    StackUnwinder unwinder(UnwinderChoice::automatic, counting_platform(), true);
    trace::Frame frames[64];
    bool cut = false;
    const auto capture = [&] {
        g_asked = 0;
        return unwinder.capture(frames, 64, cut);
    };
    for (int i = 0; i < 2; ++i)
        CHECK(capture() > 3);
    CHECK(g_asked == 0);
    for (int i = 0; i < 65535; ++i) { // as many as there are
        unwinder.before_unloading();
        unwinder.after_unloading(true);
    }
    CHECK(capture() > 3);
    CHECK(g_asked > 3);
    auto counters = std::make_unique<trace::Counters>();
    unwinder.publish(*counters);
    CHECK(counters->stacks_walked == 3);
    CHECK(counters->stacks_differed == 0);
}

TEST_CASE("libunwind or libgcc alone, when asked for", "[unwind]") {
    for (const UnwinderChoice choice : {UnwinderChoice::libunwind, UnwinderChoice::gcc}) {
        StackUnwinder unwinder(choice, process_platform());
        trace::Frame frames[64];
        bool cut = false;
        CHECK(unwinder.capture(frames, 64, cut) > 3);
        auto counters = std::make_unique<trace::Counters>();
        unwinder.publish(*counters);
        CHECK(counters->stacks_walked == 0);
        CHECK(counters->stacks_unwound == 1);
    }
}
