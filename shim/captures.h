// Where captures were begun, so that the process's capture gate opens again exactly when each of
// them is over.
//
// Invariant: the gate counts one for every capture that the driver may still hold open: from before
// it is asked to begin one until the capture was ended, or its stream or its context is gone. An
// invalidated capture is open until it is ended. Streams that a capture spread to count nothing:
// they leave it when its origin does.
#pragma once

#include "shim/cuda_types.h"

namespace cachealloc::shim {

class Captures {
  public:
    // Runs `call`, which begins a capture on `stream`, behind the gate; the gate stays closed if it
    // succeeded. Thread-safe, as all of these.
    template <class Call>
    static CUresult begin(CUstream stream, Call call) {
        announce();
        const CUcontext context = context_of(stream);
        const CUresult result = call();
        if (result == CUDA_SUCCESS) {
            note(stream, context);
        } else {
            withdraw();
        }
        return result;
    }

    // After a call that may have ended a capture on `stream`: an EndCapture that failed may have
    // left it open or not, so the driver is asked.
    static void maybe_ended(CUstream stream);

    // `stream` was destroyed, and a capture begun on it with it.
    static void stream_gone(CUstream stream);

    // A context, or a context converted from a green one, has ended, and with it the captures begun
    // on its streams: they can be ended no more.
    static void context_gone(CUcontext context);

  private:
    static CUcontext context_of(CUstream stream);
    static void announce();
    static void withdraw();
    static void note(CUstream stream, CUcontext context);
};

} // namespace cachealloc::shim
