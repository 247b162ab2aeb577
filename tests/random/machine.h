// The objects of a running program and what every buffer must hold.
#pragma once

#include "tests/random/calls.h"
#include "tests/random/kernels.h"
#include "tests/random/program.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace random_programs {

/// The head of a buffer as the program's order of operations makes it; -1: not known. Since the
/// program has no race, that order is the only one there can be.
using Content = std::array<std::int16_t, kHead>;

struct LiveBlock {
    void* at = nullptr; ///< null: could not be had, or freed
    std::size_t size = 0;
    int device = 0;
    Content content{};
};

struct LiveHost {
    unsigned char* at = nullptr;
    Content content{};
};

struct LiveGraph {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    std::vector<std::function<void()>> effects;
};

/// Carries operations out, one after the other, in whatever thread calls.
class Machine {
  public:
    Machine();
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    /// What the operation's call returned, or kLeftOut. `capture`: serial of the capture that its
    /// stream takes part in, -1 if none.
    std::int32_t run(const Operation& operation, int capture);

    /// Waits, looks at every buffer, gives everything back and looks at the device's memory.
    /// Returns a Status.
    int clean_up();

  private:
    static constexpr std::size_t kHostBytes = 4096;
    static constexpr std::size_t kCopyBytes = 65536;

    std::int32_t run_objects(const Operation& o);
    std::int32_t run_memory(const Operation& o);
    std::int32_t run_work(const Operation& o);
    std::int32_t run_copies(const Operation& o);
    std::int32_t run_waits(const Operation& o);
    std::int32_t run_capture(const Operation& o);
    std::int32_t run_contexts(const Operation& o);
    std::int32_t visit(const Operation& o);
    std::int32_t publish(const Operation& o);
    std::int32_t reset();

    LiveBlock& block(std::int64_t name) { return blocks_[static_cast<std::size_t>(name)]; }
    LiveHost& host(std::int64_t name) { return hosts_[static_cast<std::size_t>(name)]; }
    cudaStream_t stream(std::int64_t name) const;
    static const Calls& calls(std::int64_t stream);
    bool lacks(const Operation& o) const; ///< a buffer that could not be had
    std::int32_t stand_in(const Operation& o);
    /// Done now, or at each launch of the graph that is being captured.
    void effect(std::function<void()> change);
    void look(const Content& wanted, const unsigned char* got, std::size_t bytes, const char* kind,
              std::int64_t name);
    static void forget(LiveBlock& block);
    static void end_failures();

    std::array<LiveBlock, kBlocks> blocks_{};
    std::vector<LiveBlock> left_over_; ///< whose free failed
    std::array<LiveHost, kHosts> hosts_{};
    std::array<std::array<unsigned char, kHostBytes>, kHosts - kPinned> pageable_{};
    std::array<cudaStream_t, kStreams> streams_{};
    std::array<cudaEvent_t, kEvents> events_{};
    std::array<LiveGraph, kGraphs> graphs_{};
    std::array<std::uint32_t*, kFlags> flags_{};
    std::map<int, std::vector<std::function<void()>>> captured_; ///< by the capture's serial
    static thread_local int capture_;                            ///< of the operation under way
    bool wrong_ = false;
    bool keeps_memory_ = false; ///< an importer may hold some, or the driver failed to free it
    std::array<std::atomic<bool>, kDevices> used_{true}; ///< devices with a context
};

} // namespace random_programs
