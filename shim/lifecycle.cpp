#include "shim/lifecycle.h"

#include "shim/object_walk.h"
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
}

} // namespace

void watch_lifecycle(Process& process) {
    pthread_atfork(before_fork, in_parent, in_child);
    if (process.options.stats) std::atexit(print_statistics);
}

} // namespace cachealloc::shim
