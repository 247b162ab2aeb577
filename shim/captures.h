// The streams on which a capture was begun, so that the process's capture gate opens again exactly
// when each of them is over.
#pragma once

#include "shim/cuda_types.h"

namespace cachealloc::shim {

class Captures {
  public:
    // Runs `call`, which begins a capture on `stream`, behind the gate; the gate stays closed if it
    // succeeded.
    template <class Call>
    static CUresult begin(CUstream stream, Call call) {
        announce();
        const CUresult result = call();
        if (result == CUDA_SUCCESS) {
            note(stream);
        } else {
            withdraw();
        }
        return result;
    }

    // After a call that may have ended a capture on `stream`: an EndCapture that failed may have
    // left it open or not, so the driver is asked.
    static void maybe_ended(CUstream stream);

    // `stream` is about to be destroyed, and a capture on it with it.
    static void destroyed(CUstream stream);

  private:
    static void announce();
    static void withdraw();
    static void note(CUstream stream);
    static bool forget(CUstream stream);
};

} // namespace cachealloc::shim
