// Which objects are loaded, as the recording's module log knows it.
//
// Invariant: before a stack with an address of some object is recorded, that object's load is in
// the log; and before an address is recorded that means something else than before, the unload of
// what had been there is. Loads are noticed when an unknown object turns up in a stack, unloads by
// dlclose (objects.cpp). Nothing is scanned for code outside any object (generated code).
//
// The scan takes the lock of object_walk.h and, inside it, the loader's. It gives up rather than
// wait for long, since its thread may be inside a walk of the program's own.
#pragma once

#include "core/record/recorder.h"

#include <cstdint>

#include <link.h>

namespace cachealloc::shim {

// Writes the modules that are loaded now and keeps the log of `recorder` from now on. Once, before
// the first event.
void start_module_log(Recorder& recorder);

// The mapping of an object, as found in a walk, into `record`: bias, start, end.
void find_range(const dl_phdr_info& info, trace::ModuleRecord& record);

// Writes what has changed since. Any thread that holds no lock; not from inside a walk of ours.
// O(objects), some 10 us for 100. False: somebody else was at it for too long.
bool scan_modules();

// Whether the object that is mapped at `start` is in the log. Lock-free.
bool module_known(std::uintptr_t start);
// A scan has not found that object (it lives in another namespace): stop looking for it.
void give_up_on_module(std::uintptr_t start);

// What has happened to the objects since the last scan; both where that could not be found out.
struct ObjectChanges {
    bool loads = true;
    bool unloads = true;
};
// Takes the loader's lock.
ObjectChanges changes_since_scan();

// Whether code was ever loaded where other code had been, as far as scans have seen.
bool code_replaced();

// In a forked child: nothing is written any more. Async-signal-safe.
void stop_module_log();

} // namespace cachealloc::shim
