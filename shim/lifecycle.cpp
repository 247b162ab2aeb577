#include "shim/lifecycle.h"

#include "shim/process.h"
#include "shim/report.h"

#include <cstdlib>

#include <pthread.h>

namespace cachealloc::shim {

void watch_lifecycle(Process& process) {
    pthread_atfork(nullptr, nullptr, switch_off_in_child);
    if (process.options.stats) std::atexit(print_statistics);
}

} // namespace cachealloc::shim
