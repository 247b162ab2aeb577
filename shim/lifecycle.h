// Fork and exit, as they concern the preload.
//
// Invariant: at exit nothing is freed and no CUDA function is called; in a forked child no lock of
// the parent's is ever taken, because nothing of ours runs there any more.
#pragma once

namespace cachealloc::shim {

struct Process;

// Registers for fork and exit. Called once, at the first CUDA call.
void watch_lifecycle(Process& process);

// Makes process() null for good (process.cpp); runs in a forked child.
void switch_off_in_child();

} // namespace cachealloc::shim
