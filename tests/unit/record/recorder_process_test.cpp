// The recorder among threads, forks, signals and kills.
#include "core/record/recorder.h"

#include "tests/unit/record/recording.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <barrier>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::AddressSpace;
using trace::CallName;
using trace::EventKind;

namespace {

/// One pair of an address that only `thread` uses.
void pair(Recorder& recorder, std::uint64_t thread, std::uint64_t i) {
    const std::uint64_t address = (thread << 32) + i * 512;
    {
        const RecordedCall call(&recorder, CallName::mem_alloc);
        recorder.allocated(memory(address, 1000));
    }
    const RecordedCall call(&recorder, CallName::mem_free);
    recorder.freed(AddressSpace::device, memory(address, 0));
}

RecorderSettings ring_of(std::uint64_t bytes) {
    RecorderSettings settings;
    settings.ring_bytes = bytes;
    return settings;
}

Recorder* g_recorder = nullptr;

void handle(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigaction(signal, &action, nullptr);
}

} // namespace

TEST_CASE("recorder: threads that come and go, in a ring that wraps", "[record]") {
    const Folder folder;
    constexpr std::uint64_t kThreads = 300;
    constexpr std::uint64_t kPairs = 200;
    REQUIRE(record_in_child(folder / "trace", ring_of(1 << 20), [](Recorder& recorder) {
                std::vector<std::thread> threads;
                for (std::uint64_t number = 1; number <= kThreads; ++number) {
                    threads.emplace_back([&recorder, number] {
                        for (std::uint64_t i = 0; i < kPairs; ++i)
                            pair(recorder, number, i);
                    });
                    if (threads.size() < 6) continue;
                    threads.front().join();
                    threads.erase(threads.begin());
                }
                for (std::thread& thread : threads)
                    thread.join();
                return 0;
            }) == 0);
    const View view(folder / "trace");
    const auto events = view.events();
    CHECK(view.counters().lost == 0);
    CHECK(events.size() + view.counters().overwritten == 2 * kThreads * kPairs);
    CHECK(events.size() > 10'000);
    CHECK(view.live().empty());
    CHECK(view.device(0).live == 0);
    CHECK(view.device(0).live_peak >= 1000);
    CHECK(view.device(0).live_peak <= 6000);
    std::uint64_t ended = 0;
    for (const auto& it : view.elements<trace::ThreadRecord>(trace::SectionType::threads))
        ended += it.end >= it.start && it.end != 0 ? 1 : 0;
    CHECK(ended == kThreads);
    // What is free again was freed after it was allocated, in the order of times.
    std::map<std::uint64_t, EventKind> last;
    for (const Event& event : events) {
        const auto [known, first] = last.emplace(event.address, event.kind);
        if (!first && known->second == event.kind) FAIL("twice the same at one address");
        known->second = event.kind;
    }
}

TEST_CASE("recorder: one address handed from thread to thread keeps its order", "[record]") {
    const Folder folder;
    REQUIRE(record_in_child(folder / "trace", {}, [](Recorder& recorder) {
                std::atomic<bool> free{true}; // the pool of one block
                std::vector<std::thread> threads;
                for (int number = 0; number < 4; ++number) {
                    threads.emplace_back([&] {
                        for (int i = 0; i < 3000; ++i) {
                            while (!free.exchange(false, std::memory_order_acquire))
                                std::this_thread::yield();
                            recorder.allocated(memory(4096, 1));
                            recorder.freed(AddressSpace::device, memory(4096, 0));
                            free.store(true, std::memory_order_release);
                        }
                    });
                }
                for (std::thread& thread : threads)
                    thread.join();
                return 0;
            }) == 0);
    const View view(folder / "trace");
    const auto events = view.events();
    REQUIRE(events.size() == 4 * 3000 * 2);
    for (std::size_t i = 0; i < events.size(); ++i) {
        if (events[i].kind != (i % 2 == 0 ? EventKind::alloc : EventKind::free))
            FAIL("out of order at " << i);
    }
    CHECK(view.counters().unknown_frees == 0);
}

TEST_CASE("recorder: more threads at once than chunks lose events, and count them", "[record]") {
    const Folder folder;
    REQUIRE(record_in_child(folder / "trace", ring_of(4 * 4096), [](Recorder& recorder) {
                constexpr int kThreads = 12;
                std::barrier together(kThreads);
                std::vector<std::thread> threads;
                for (std::uint64_t number = 1; number <= kThreads; ++number) {
                    threads.emplace_back([&, number] {
                        pair(recorder, number, 0);
                        together.arrive_and_wait(); // all of them hold what they have
                        for (std::uint64_t i = 1; i < 100; ++i)
                            pair(recorder, number, i);
                        recorder.allocated(memory(number << 32, 65536));
                        together.arrive_and_wait();
                    });
                }
                for (std::thread& thread : threads)
                    thread.join();
                return 0;
            }) == 0);
    const View view(folder / "trace");
    CHECK(view.counters().lost >= 8 * 2); // later on a chunk that is full changes hands
    CHECK(view.events().size() + view.counters().overwritten + view.counters().lost == 12 * 201);
    CHECK(view.live().size() == 12); // what is live is known all the same
    CHECK(view.device(0).live == 12 * 65536);
    CHECK(std::ranges::count(view.live(), trace::kLostSequence, &Event::sequence) >= 8);
}

#ifndef __SANITIZE_THREAD__ // whose runtime is gone by the later rounds of a thread's destructors
TEST_CASE("recorder: what a thread frees while it ends is recorded", "[record]") {
    const Folder folder;
    REQUIRE(record_in_child(folder / "trace", ring_of(2 * 4096), [](Recorder& recorder) {
                g_recorder = &recorder;
                static pthread_key_t key;
                // Comes after the recorder's own, and again in the rounds that follow.
                pthread_key_create(&key, [](void* left) {
                    const auto rounds = reinterpret_cast<std::uintptr_t>(left);
                    pair(*g_recorder, 1, rounds);
                    if (rounds > 1) pthread_setspecific(key, reinterpret_cast<void*>(rounds - 1));
                });
                for (int i = 0; i < 50; ++i) {
                    std::thread([&] {
                        pthread_setspecific(key, reinterpret_cast<void*>(4));
                        pair(recorder, 1, 9);
                    }).join();
                }
                // The last rounds may have left chunks behind: they are found.
                for (std::uint64_t i = 0; i < 100; ++i)
                    pair(recorder, 2, i);
                return 0;
            }) == 0);
    const View view(folder / "trace");
    const std::uint64_t lost = view.counters().lost;
    CHECK(view.events().size() + view.counters().overwritten + lost == 50 * 10 + 200);
    CHECK(lost <= 50 * 2); // join() returns a moment before the system forgets a thread
    CHECK(view.live().empty());
}
#endif

TEST_CASE("recorder: a forked child does not write into its parent's file", "[record]") {
    // As its fork handler says; where none runs; and in the parent's own memory.
    enum class Way { handler, bare, vfork };
    const Way way = GENERATE(Way::handler, Way::bare, Way::vfork);
    const Folder folder;
    FakeStacks stacks;
    RecorderSettings settings;
    settings.stacks = &stacks;
    REQUIRE(record_in_child(folder / "trace", settings, [&](Recorder& recorder) {
                for (std::uint64_t i = 1; i <= trace::kChunkRecords; ++i) { // a full chunk
                    const RecordedCall call(&recorder, CallName::mem_alloc);
                    recorder.allocated(memory(i * 512, 65536));
                }
                const auto work = [&] {
                    if (way == Way::handler) Recorder::forget_in_child();
                    if (way != Way::vfork) stacks.frames = {0xbad};
                    const RecordedCall call(&recorder, CallName::mem_free);
                    recorder.freed(AddressSpace::device, memory(512, 0));
                    recorder.allocated(memory(1 << 30, 65536));
                    recorder.set("child", "yes");
                    if (way == Way::vfork) return;
                    recorder.note(EventKind::out_of_memory, memory(0, 0));
                    recorder.set_statistic("child", 1);
                    recorder.exiting(true);
                    MemoryEvent event;
                    if (recorder.find(AddressSpace::device, 1024, event)) _exit(1);
                };
                const pid_t child = way == Way::vfork  ? vfork()
                                    : way == Way::bare ? static_cast<pid_t>(syscall(SYS_fork))
                                                       : fork();
                if (child == 0) {
                    work();
                    _exit(0);
                }
                int status = 0;
                if (waitpid(child, &status, 0) != child || status != 0) return 1;
                recorder.freed(AddressSpace::device, memory(1024, 0));
                return 0;
            }) == 0);
    REQUIRE(std::filesystem::exists(folder / "trace"));
    const View view(folder / "trace");
    CHECK(view.state() == trace::RunState::recording);
    CHECK(view.events().size() == trace::kChunkRecords + 1);
    CHECK(view.live().size() == trace::kChunkRecords - 1);
    CHECK(view.device(0).live == (trace::kChunkRecords - 1) * 65536);
    CHECK(view.header().seen == 0);
    CHECK(view.counters().unknown_frees == 0);
    if (way != Way::vfork) CHECK(view.section(trace::SectionType::settings).used == 0);
}

TEST_CASE("recorder: a signal handler during a capture records without a stack", "[record]") {
    class RaisingStacks : public FakeStacks {
      public:
        std::size_t capture(trace::Frame* to, std::size_t room, bool& cut) override {
            ++depth;
            if (depth == 1) raise(SIGUSR1);
            if (depth > 1) entered_twice = true;
            --depth;
            return FakeStacks::capture(to, room, cut);
        }
        int depth = 0;
        bool entered_twice = false;
    };
    const Folder folder;
    RaisingStacks stacks;
    RecorderSettings settings;
    settings.stacks = &stacks;
    REQUIRE(record_in_child(folder / "trace", settings, [&](Recorder& recorder) {
                g_recorder = &recorder;
                handle(SIGUSR1, [](int) {
                    const RecordedCall call(g_recorder, CallName::mem_alloc_managed);
                    g_recorder->allocated(memory(8192, 1));
                });
                const RecordedCall call(&recorder, CallName::mem_alloc);
                recorder.allocated(memory(4096, 1));
                return stacks.entered_twice ? 1 : 0;
            }) == 0);
    const View view(folder / "trace");
    const auto events = view.events();
    REQUIRE(events.size() == 2);
    CHECK(events[0].address == 8192);
    CHECK(events[0].stack == 0);
    CHECK(events[0].call == CallName::mem_alloc_managed);
    CHECK(view.frames(events[1].stack).size() == 3);
    CHECK(events[1].call == CallName::mem_alloc);
}

TEST_CASE("recorder: signals in the middle of writing are left out and counted", "[record]") {
    const Folder folder;
    struct Counts {
        std::atomic<std::uint64_t> handled;
    };
    auto* const counts = static_cast<Counts*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    static Counts* shared = nullptr;
    shared = counts;
    static std::uint64_t attempts = 0;
    attempts = 0;
    std::uint64_t* const pairs = reinterpret_cast<std::uint64_t*>(counts + 1);
    REQUIRE(record_in_child(folder / "trace", ring_of(1 << 20), [&](Recorder& recorder) {
                g_recorder = &recorder;
                handle(SIGALRM, [](int) {
                    const RecordedCall call(g_recorder, CallName::mem_alloc);
                    g_recorder->note(EventKind::mark, memory(++attempts, 0));
                    ++shared->handled;
                });
                const itimerval storm{{0, 50}, {0, 50}};
                setitimer(ITIMER_REAL, &storm, nullptr);
                while (recorder.counters().nested < 20) {
                    pair(recorder, 1, *pairs % 100);
                    ++*pairs;
                }
                const itimerval quiet{};
                setitimer(ITIMER_REAL, &quiet, nullptr);
                return 0;
            }) == 0);
    const View view(folder / "trace");
    CHECK(view.counters().nested >= 20);
    CHECK(view.events().size() + view.counters().overwritten + view.counters().nested ==
          2 * *pairs + counts->handled);
    CHECK(view.live().empty());
    munmap(counts, 4096);
}

TEST_CASE("recorder: a process that is killed leaves a file that is whole", "[record]") {
    const Folder folder;
    const std::string path = folder / "trace";
    FakeStacks stacks;
    const pid_t child = fork();
    if (child == 0) {
        const char* const paths[] = {path.c_str()};
        RecorderSettings settings = ring_of(1 << 20);
        settings.paths = paths;
        settings.path_count = 1;
        settings.stacks = &stacks;
        int error = 0;
        std::size_t index = 0;
        Recorder* const recorder = Recorder::start(settings, error, index);
        if (recorder == nullptr) _exit(1);
        std::vector<std::thread> threads;
        for (std::uint64_t number = 1; number <= 3; ++number) {
            threads.emplace_back([&, number] {
                for (std::uint64_t i = 0;; ++i)
                    pair(*recorder, number, i % 64);
            });
        }
        for (std::thread& thread : threads)
            thread.join();
    }
    while (true) { // until the ring has come round
        const View view(path);
        if (view.good() && view.header().section_count != 0 && view.counters().next_claim > 2000)
            break;
        if (waitpid(child, nullptr, WNOHANG) != 0) FAIL("the recorder did not start");
        std::this_thread::yield();
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);

    const View view(path);
    CHECK(view.state() == trace::RunState::recording);
    const auto events = view.events(); // aborts on a record that is torn
    CHECK(events.size() > 200 * trace::kChunkRecords);
    std::set<std::uint64_t> live;
    for (const Event& event : view.live()) {
        live.insert(event.sequence);
        CHECK(event.size == 1000);
    }
    CHECK(live.size() <= 3); // each thread has one at most
    for (const auto& slot : view.elements<trace::StackSlot>(trace::SectionType::stacks)) {
        if (slot.first != 0) CHECK(slot.frames == 3);
    }
}
