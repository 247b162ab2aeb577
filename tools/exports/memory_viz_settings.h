#pragma once

#include "tools/analysis/history.h"
#include "tools/exports/pickle_writer.h"

namespace cachealloc::tools {

/// Writes the snapshot's `allocator_settings`, which the page shows as they are: PyTorch's keys as
/// far as this allocator has them, and under "cachealloc" what is known of the recording and the
/// pool's options.
void write_allocator_settings(PickleWriter& pickle, const Trace& trace, const History& history);

} // namespace cachealloc::tools
