// The recording of this process: where it goes, what it says about the process, how it ends.
//
// Invariant: it never keeps the program from running: where no file can be made, one line says so
// and nothing is recorded. Its file is made at the first CUDA call, and is this process's alone: a
// forked child forgets it.
#pragma once

#include "shim/recorded_contexts.h"
#include "shim/stack_source.h"
#include "shim/virtual_memory.h"

#include <atomic>
#include <cstdint>

namespace cachealloc {
class Recorder;
}

namespace cachealloc::shim {

class Recording {
  public:
    explicit Recording(Process& process) : contexts(process), process_(process) {}

    // Makes the file, if the options ask for one. Once, before other threads see the process. Calls
    // neither CUDA nor the dynamic linker, whose lock another thread may hold while it waits for
    // this one.
    void start();

    // Null where nothing is recorded.
    Recorder* recorder() const { return recorder_; }

    // A request for `bytes` has failed for lack of device memory, in spite of the pools' giving
    // back what they had. To be called within the call's RecordedCall.
    void out_of_memory(std::uint64_t bytes);

    // Writes down the driver's version, the first time. For RecordedContexts, under its lock.
    void describe_driver();

    // The process leaves through exit(). Calls no CUDA function.
    void exiting();

    RecordedContexts contexts;
    VirtualMemory virtual_memory;

  private:
    static void refresh(void* self);
    void describe_process();
    void write_statistics(bool pieces);

    Process& process_;
    LateStacks stacks_;
    Recorder* recorder_ = nullptr;
    bool driver_described_ = false;
    bool named_ = false; // by the user, who wants to keep it
    std::atomic<bool> ran_out_{false};
};

} // namespace cachealloc::shim
