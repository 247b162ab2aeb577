// What kinds of programs there are, and which shim and device they meet.
#include "tests/random/generator.h"

namespace random_programs {

namespace {

constexpr std::string_view kAll =
    "device:2 stream:6 destroy:2 event:1 record:3 wait:3 malloc:16 free:14 malloc_async:5 "
    "free_async:5 fill:16 overlap:3 copy:8 memset:3 memset_now:2 h2d:4 h2d_now:1 d2h:3 d2h_now:1 "
    "d2d:3 "
    "d2d_now:1 plane:1 plane_now:1 peer:2 peer_now:1 peers:1 pinned:2 unpinned:1 set_host:1 "
    "check_host:2 check:4 sync:3 sync_event:1 sync_device:2 query:1 query_event:1 host_func:1 "
    "capture:2 end_capture:6 launch:4 ungraph:1 await:1 signal:3 write_value:1 visit:1 publish:1 "
    "reset:1 fail:1 advance:2";
constexpr std::string_view kTight = "free:async,slack_mb:0,slack_percent:0";

constexpr Profile kProfiles[] = {
    {"everything", "", kAll, "", 6, 4, 2, true},
    {"plain", "", "stream:4 malloc:20 free:18 fill:20 copy:8 memset_now:3 check:3 sync:2 advance:1",
     "", 2, 1, 1, true},
    {"threads", "",
     "stream:5 destroy:2 malloc:18 free:16 malloc_async:3 free_async:3 fill:18 copy:8 memset:3 "
     "h2d:2 check:3 sync:3 sync_device:1 advance:1",
     "", 4, 4, 1, true},
    {"free_running", "",
     "stream:6 destroy:2 event:1 record:2 wait:2 malloc:18 free:16 malloc_async:5 free_async:5 "
     "fill:20 copy:6 memset:3 d2d:3 sync:2 sync_device:1 advance:1",
     "", 7, 4, 1, true, true},
    {"one_stream", "",
     "malloc:18 free:16 malloc_async:4 free_async:4 fill:14 copy:8 memset:4 memset_now:4 h2d:3 "
     "d2h:3 pinned:1 check_host:2 check:3 sync:2 query:1 capture:1 end_capture:4 launch:3",
     "", 1, 1, 1},
    {"fence", "fence", "stream:6 malloc:20 free:20 fill:24 copy:8", kTight, 3, 1, 1},
    {"numbering", "numbering", "stream:4 malloc:20 free:20 fill:20 sync_device:3 advance:3", kTight,
     3, 1, 1},
    {"barrier", "barrier", "stream:6 malloc:20 free:20 fill:24 copy:8", kTight, 3, 1, 1},
    {"finished_level", "finished_level",
     "device:4 stream:6 malloc:18 free:18 fill:20 peer:16 d2d:4 peers:1", kTight, 3, 1, 2},
    {"finished_only", "finished_only",
     "stream:6 malloc:16 free_async:12 fill:12 await:6 signal:6 sync_device:1", kTight, 3, 1, 1},
    {"capture_aside", "capture_aside",
     "stream:6 malloc:16 free:16 fill:12 memset:3 capture:6 end_capture:6 launch:6", kTight, 4, 2,
     1},
    {"ordered_exit", "ordered_exit", "stream:1 malloc:20 free:20 fill:20 memset_now:2", kTight, 2,
     2, 1, true},
    {"programmatic", "programmatic", "malloc:20 free:20 fill:14 overlap:14 stream:1", kTight, 2, 1,
     1},
    {"stream_event", "stream_event", "stream:6 malloc_async:20 free_async:20 malloc:6 fill:20",
     kTight, 3, 1, 1},
    {"stream_identity", "stream_identity",
     "stream:8 destroy:6 malloc_async:20 free_async:20 fill:20", kTight, 2, 2, 1, true},
    {"host_visible", "host_visible",
     "stream:4 malloc:16 free:16 fill:8 pinned:6 d2h:20 check_host:16 query:3",
     "free:auto,slack_mb:0,slack_percent:0", 3, 1, 1},
    {"transition_sync", "transition_sync",
     "device:3 stream:6 malloc:18 free:18 fill:20 visit:3 peer:4 publish:2", kTight, 3, 1, 2},
};

} // namespace

std::span<const Profile> profiles() {
    return kProfiles;
}

const Profile& everything() {
    return kProfiles[0];
}

const Profile* profile_for_rule(std::string_view rule) {
    for (const Profile& profile : kProfiles) {
        if (profile.rule == rule) return &profile;
    }
    return nullptr;
}

} // namespace random_programs
