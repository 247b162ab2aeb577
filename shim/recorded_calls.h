// How hooks record memory that the driver serves.
//
// Invariant: an address that is given back is recorded before the driver hears of it, since another
// thread may get it at once; where the driver refuses, that is undone.
#pragma once

#include "core/record/recorder.h"
#include "shim/driver.h"
#include "shim/process.h"

#include <cstdint>

namespace cachealloc::shim {

inline Recorder* recorder_of(const Process* state) {
    return state != nullptr ? state->recording.recorder() : nullptr;
}

// A call that gives memory back: its stack is captured if the options ask for it.
inline bool with_free_stack(const Process* state) {
    return state != nullptr && state->options.stacks == StackMode::all;
}

// The program was given what `event` says; context and device are filled in, the device only if
// `device` is not kDeviceOfContext. Recording must be on.
inline constexpr int kDeviceOfContext = -1;
void record_passed(Process& state, MemoryEvent event, int device = kDeviceOfContext);

// Memory that the driver gets back. Does nothing if `recorder` is null.
class PassedFree {
  public:
    PassedFree(Recorder* recorder, trace::AddressSpace space, std::uint64_t address,
               std::uint64_t stream = 0, std::uint8_t flags = 0);

    // To be told what the driver answered; returns it.
    CUresult done(CUresult result);

    // What was given back; `size` 0 if that is not known.
    const MemoryEvent& event() const { return was_; }

  private:
    Recorder* const recorder_;
    MemoryEvent was_;
    bool known_ = false;
    bool recorded_ = false;
};

// Runs `call`, which asks the driver for `bytes`, and records what comes of it: `got()` gives the
// MemoryEvent of a success.
template <class Call, class Got>
CUresult record_alloc(trace::CallName name, std::uint64_t bytes, Call call, Got got) {
    Process* const state = process();
    Recorder* const recorder = recorder_of(state);
    const RecordedCall bracket(recorder, name);
    const CUresult result = call();
    if (recorder == nullptr) return result;
    if (result == CUDA_SUCCESS) record_passed(*state, got());
    if (result == CUDA_ERROR_OUT_OF_MEMORY) state->recording.out_of_memory(bytes);
    return result;
}

// Runs `call`, which gives the memory at `address` back to the driver.
template <class Call>
CUresult record_free(trace::CallName name, trace::AddressSpace space, std::uint64_t address,
                     Call call) {
    Process* const state = process();
    Recorder* const recorder = recorder_of(state);
    const RecordedCall bracket(recorder, name, with_free_stack(state));
    PassedFree freed(recorder, space, address);
    return freed.done(call());
}

// The contexts behind these handles have ended: so does what the driver had served there.
void record_contexts_ended(Process& state, const std::vector<CUcontext>& contexts);

} // namespace cachealloc::shim
