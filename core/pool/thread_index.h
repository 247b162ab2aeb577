#pragma once

#include <cstdint>

namespace cachealloc {

/// A small number for the calling thread, unique among the threads alive, reused after its end.
/// At most kThreads - 1 threads have one of their own; further threads, and threads whose
/// thread-local objects are already being destroyed, get kSharedThread, which many may hold at
/// once.
constexpr std::uint32_t kThreads = 1024;
constexpr std::uint32_t kSharedThread = 0;

namespace detail {
/// 0 = not asked yet, else index + 1.
extern thread_local std::uint32_t t_thread_index_plus_one;
std::uint32_t assign_thread_index();
} // namespace detail

/// Lock-free after a thread's first call.
inline std::uint32_t thread_index() {
    const std::uint32_t known = detail::t_thread_index_plus_one;
    return known != 0 ? known - 1 : detail::assign_thread_index();
}

/// One more than the highest index given out so far.
std::uint32_t thread_index_limit();

} // namespace cachealloc
