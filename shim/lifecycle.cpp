#include "shim/lifecycle.h"

#include "core/record/recorder.h"
#include "shim/object_walk.h"
#include "shim/objects.h"
#include "shim/process.h"
#include "shim/report.h"

#include <cstdlib>

#include <pthread.h>

namespace cachealloc::shim {

namespace {

void before_fork() {
    object_walk_mutex().lock();
}

void in_parent() {
    object_walk_mutex().unlock();
}

void in_child() {
    object_walk_mutex().unlock();
    switch_off_in_child();
    Recorder::forget_in_child();
    forget_objects_in_child();
}

void at_exit() {
    Process* const state = process();
    if (state == nullptr) return;
    state->recording.exiting();
    if (state->options.stats) print_statistics();
}

} // namespace

void watch_lifecycle(Process& process) {
    pthread_atfork(before_fork, in_parent, in_child);
    if (process.options.stats || process.recording.recorder() != nullptr) std::atexit(at_exit);
}

} // namespace cachealloc::shim
