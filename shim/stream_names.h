// Which stream a handle means.
//
// Invariant: a stream is told apart from every other, also from those that are gone, by the number
// the driver gives it (cuStreamGetId), never by its handle: handles of destroyed streams come back
// while the old stream's work still runs, and those of default streams mean another stream in each
// context and, for the per-thread one, in each thread.
#pragma once

#include "shim/cuda_types.h"
#include "shim/process.h"

#include <cstdint>

namespace cachealloc::shim {

struct StreamName {
    ContextPool* context = nullptr; // whose stream it is; null: of no pool's context
    std::uint64_t id = 0;
    bool primary = false; // that context is its device's primary one
};

// Names `stream`, a handle that is not null, of the calling thread and its current context. Returns
// what the driver says of an invalid handle. Each thread remembers a few, until a stream or a
// context ends; so the driver is seldom asked, and never about a handle that has become invalid
// since. Not beside an open capture.
CUresult name_stream(Process& process, CUstream stream, StreamName& name);

// A stream is about to be destroyed: what threads remember is not valid any more.
void stream_is_ending();

// The handle that a null one stands for.
inline CUstream legacy_if_null(CUstream stream) {
    return stream == nullptr ? kStreamLegacy : stream;
}
inline CUstream per_thread_if_null(CUstream stream) {
    return stream == nullptr ? kStreamPerThread : stream;
}

} // namespace cachealloc::shim
