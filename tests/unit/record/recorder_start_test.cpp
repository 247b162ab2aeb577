// How a recording begins and ends, and what it does besides events.
#include "core/record/recorder.h"

#include "tests/unit/record/recording.h"

#include <catch2/catch.hpp>

#include <cerrno>
#include <filesystem>
#include <string>

using namespace cachealloc;
using namespace cachealloc::test;
using trace::CallName;

namespace {

/// Starts with these paths in a child: 1000 times the index of the path used and the error.
std::pair<std::size_t, int> start_with(const std::vector<std::string>& paths) {
    struct Answer {
        std::size_t index;
        int error;
    };
    auto* const answer = static_cast<Answer*>(
        mmap(nullptr, sizeof(Answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const int status = in_child([&] {
        std::vector<const char*> names;
        for (const std::string& path : paths)
            names.push_back(path.c_str());
        RecorderSettings settings;
        settings.paths = names.data();
        settings.path_count = names.size();
        settings.ring_bytes = 1 << 20;
        const Recorder* const recorder = Recorder::start(settings, answer->error, answer->index);
        return (recorder != nullptr) == (answer->error == 0) ? 0 : 1;
    });
    CHECK(status == 0);
    const std::pair<std::size_t, int> result{answer->index, answer->error};
    munmap(answer, sizeof(Answer));
    return result;
}

} // namespace

TEST_CASE("recorder: the first path that has room is taken", "[record]") {
    const Folder folder;
    const std::string good = folder / "good";
    const std::string bad = folder / "no/folder";
    CHECK(start_with({good}) == std::pair<std::size_t, int>{0, 0});
    CHECK(std::filesystem::exists(good));
    CHECK(start_with({good}) == std::pair<std::size_t, int>{0, EEXIST});
    CHECK(start_with({good, bad, folder / "other", folder / "unused"}) ==
          std::pair<std::size_t, int>{2, 0});
    CHECK_FALSE(std::filesystem::exists(folder / "unused"));
    CHECK(start_with({good, bad}) == std::pair<std::size_t, int>{1, ENOENT});
    CHECK(start_with({}) == std::pair<std::size_t, int>{0, ENOENT});
}

TEST_CASE("recorder: there is one in a process", "[record]") {
    const Folder folder;
    CHECK(record_in_child(folder / "trace", {}, [&](Recorder&) {
              const std::string path = folder / "second";
              const char* const paths[] = {path.c_str()};
              RecorderSettings settings;
              settings.paths = paths;
              settings.path_count = 1;
              int error = 0;
              std::size_t index = 0;
              if (Recorder::start(settings, error, index) != nullptr) return 1;
              return std::filesystem::exists(path) ? 2 : error;
          }) == EBUSY);
}

TEST_CASE("recorder: at exit the state is clean, and the name goes if it should", "[record]") {
    const bool remove = GENERATE(false, true);
    const Folder folder;
    const std::string path = folder / "trace";
    const std::string kept = folder / "kept"; // a second name, to look at it afterwards
    REQUIRE(record_in_child(path, {}, [&](Recorder& recorder) {
                std::filesystem::create_hard_link(path, kept);
                recorder.allocated(memory(4096, 100)); // held back until the end
                recorder.exiting(remove);
                recorder.allocated(memory(8192, 1));
                return std::string(recorder.path()) == path ? 0 : 1;
            }) == 0);
    CHECK(std::filesystem::exists(path) != remove);
    const View view(kept);
    CHECK(view.state() == trace::RunState::clean_exit);
    CHECK(view.device(0).live == 100);
    CHECK(view.counters().live_records == 1);
    CHECK(view.events().size() == 2);
}

TEST_CASE("recorder: now and then it asks for statistics, with nothing of its own held",
          "[record]") {
    const Folder folder;
    struct Context {
        Recorder* recorder = nullptr;
        std::uint64_t calls = 0;
    } context;
    RecorderSettings settings;
    settings.refresh_context = &context;
    settings.refresh = [](void* pointer) {
        auto& mine = *static_cast<Context*>(pointer);
        ++mine.calls;
        if (mine.recorder == nullptr) return;
        const RecordedCall call(mine.recorder, CallName::trim);
        mine.recorder->set_statistic("calls", mine.calls);
        mine.recorder->note(trace::EventKind::mark, memory(mine.calls, 0));
    };
    REQUIRE(record_in_child(folder / "trace", settings, [&](Recorder& recorder) {
                context.recorder = &recorder;
                while (context.calls < 3) {
                    const RecordedCall call(&recorder, CallName::mem_alloc);
                    const std::uint64_t before = context.calls;
                    recorder.note(trace::EventKind::mark, memory(0, 0));
                    if (context.calls != before) return 1; // not within a call
                }
                return 0;
            }) == 0);
    const View view(folder / "trace");
    const auto found = view.elements<trace::StatisticRecord>(trace::SectionType::statistics);
    REQUIRE(found.size() == 1);
    CHECK(found[0].value == 3);
    const trace::Header& header = view.header();
    CHECK(header.latest_sequence % 2 == 0);
    CHECK(header.latest_ticks > header.start.ticks);
    CHECK(header.latest_realtime_ns > header.start.realtime_ns);
}
