// Objects whose calls no preload sees: RTLD_DEEPBIND binds a library's own look-ups to the C
// library and the driver, past everything that was preloaded.
//
// What gives them away: a slot of their procedure linkage table for a look-up function that holds
// the C library's own function, or for cuInit the driver's, although this library exports both.
#pragma once

namespace cachealloc::shim {

// True once such an object is loaded; said once. Called on growth: a look at how many objects were
// ever loaded, and a walk over their tables where that has changed. Objects loaded by dlmopen are
// in a list of their own and stay unseen.
bool escapes_present();

} // namespace cachealloc::shim
