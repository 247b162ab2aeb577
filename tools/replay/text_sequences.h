#pragma once

#include "tools/replay/allocation_sequence.h"
#include "tools/replay/text_lines.h"

namespace cachealloc::tools {

inline constexpr std::string_view kEventsTitle = "op,id,bytes,stream,us,site";
inline constexpr std::string_view kIntervalsTitle = "id,lower,upper,size";

/// The events behind the title line kEventsTitle: `a` allocates, `f` frees that id, which may come
/// again afterwards. Throws TraceError with the line's number.
[[nodiscard]] AllocationSequence read_events(TextLines& lines);

/// The buffers behind the title line kIntervalsTitle, each live in [lower, upper), as events in the
/// order of time; at one time releases come first. Throws TraceError with the line's number.
[[nodiscard]] AllocationSequence read_intervals(TextLines& lines);

} // namespace cachealloc::tools
