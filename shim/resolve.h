// The doors: every way in which an application obtains a driver function leads through here.
//
//   dlsym, dlvsym         dlsym_stubs.S asks decide_*; a pseudo-handle is the C library's business
//   cuGetProcAddress      both shapes, itself included, by the pointer that the driver returned
//   linked cu* symbols    driver_exports.cpp; the first call finds the driver
//
// Invariant: a pointer is replaced only if it is the very function of the driver taken over, so a
// missing function stays missing, other versions of a name and other drivers stay untouched, and a
// name gives the same address through every door.
//
// No lock is taken, nothing is allocated, no CUDA function is called.
#pragma once

#include "shim/entry_points.h"

#include <atomic>
#include <cstdint>

namespace cachealloc::shim {

// What went through the doors, since the process began.
struct DoorCounters {
    std::atomic<std::uint64_t> dlsym_substituted;  // answers of dlsym and dlvsym
    std::atomic<std::uint64_t> lookup_substituted; // answers of cuGetProcAddress
    std::atomic<std::uint64_t> foreign_lookups;    // of an intercepted name in a second driver
    std::atomic<std::uint64_t> unknown_names;      // asked of cuGetProcAddress, not in the table
};
extern DoorCounters door_counters;

// Whether CACHEALLOC_CONF=off was set when the first driver function was looked up: then nothing is
// replaced in this process, ever.
bool is_off();

// Whether a driver has been taken over, that is, whether `real` is filled.
bool is_bound();

// Takes over the driver that `handle` leads to, unless one was taken over already: fills `real`
// from it and keeps it loaded. Idempotent; threads may race. Returns whether `real` now holds this
// driver.
bool bind_driver(void* handle);

// What a linked cu* symbol does while `real` lacks its function.
enum class Route : std::uint8_t {
    hook,    // a driver has been taken over just now: go on with the hook
    direct,  // call the driver's function, which `direct` then holds
    missing, // there is no such function
};
Route enter_unbound(Hook hook, const void* return_address, void** direct);

// The exported symbol of an intercepted entry point, which is what all doors hand out.
void* door_of(Hook hook);

} // namespace cachealloc::shim
