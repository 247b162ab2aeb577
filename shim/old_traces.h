// Recordings that processes of the past have left.
#pragma once

#include <cstddef>

namespace cachealloc::shim {

// Removes the recordings of processes that have ended from `directory`, but for the `keep` newest.
// Only regular files of this user whose names are a recording's (<program>.<pid>[-<n>].trace) are
// touched. What cannot be read or removed stays.
void remove_old_traces(const char* directory, std::size_t keep);

} // namespace cachealloc::shim
