// MemorySource over cuMemAlloc: segments that work with IPC, peer access and RDMA as any native
// allocation does.
#pragma once

#include "core/pool/memory_source.h"
#include "shim/cuda_types.h"

#include <atomic>

namespace cachealloc::shim {

struct Process;
struct ContextPool;

class CudaSource final : public MemorySource {
  public:
    // `owner` is the context whose memory it hands out; both outlive the source.
    CudaSource(Process& process, ContextPool& owner) : process_(process), owner_(owner) {}

    SourceResult allocate(std::uint64_t bytes) override;
    SourceResult release(DeviceAddress address, std::uint64_t bytes) override;
    std::uint64_t total_bytes() const override { return total_bytes_; }

    void set_total_bytes(std::uint64_t bytes) { total_bytes_ = bytes; }

  private:
    Process& process_;
    ContextPool& owner_;
    std::uint64_t total_bytes_ = 0;
};

// Makes `context` current for a scope, if it is not, and puts the former one back.
class CurrentContext {
  public:
    explicit CurrentContext(CUcontext context);
    ~CurrentContext();
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

  private:
    bool pushed_ = false;
};

} // namespace cachealloc::shim
