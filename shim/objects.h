// The stacks of the recording, as this process can give them: the core's unwinder with the loader's
// answers, libunwind opened at run time, and the module log kept in step.
//
// Invariant: libunwind is never linked and never in anybody's scope. It exports _Unwind_* symbols
// of its own; a libstdc++ that binds to them crashes in pthread_exit and throws 25 times slower.
#pragma once

#include "core/options.h"
#include "core/record/recorder.h"

namespace cachealloc::shim {

// Makes the source of stacks; to be called once, when recording starts, never destroyed. Opens
// libunwind if the choice may need it.
StackSource* make_stack_source(UnwinderChoice choice);

// Right after Recorder::start(): writes the modules and keeps the log up to date from then on.
void log_modules(Recorder& recorder);

// Brings Counters::stacks_* up to date. For RecorderSettings::refresh and the end of the process.
void publish_stack_counts(Recorder& recorder);

// In a forked child, where the recording is the parent's. Async-signal-safe.
void forget_objects_in_child();

} // namespace cachealloc::shim
