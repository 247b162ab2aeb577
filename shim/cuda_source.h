// MemorySource over cuMemAlloc (segments that work with IPC, peer access and RDMA as any native
// allocation does) and, for memory that grows, over vmm_source.h.
#pragma once

#include "core/pool/memory_source.h"
#include "shim/cuda_types.h"
#include "shim/current_context.h"
#include "shim/process_memory.h"
#include "shim/vmm_source.h"

#include <atomic>

namespace cachealloc::shim {

struct Process;
struct ContextPool;

class CudaSource final : public MemorySource {
  public:
    // `owner` is the context whose memory it hands out; both outlive the source.
    CudaSource(Process& process, ContextPool& owner);

    SourceResult allocate(std::uint64_t bytes) override;
    SourceResult release(DeviceAddress address, std::uint64_t bytes) override;
    std::uint64_t total_bytes() const override { return total_bytes_; }
    std::uint64_t process_bytes() override;

    SourceResult reserve(std::uint64_t bytes) override { return mapped_.reserve(bytes); }
    void unreserve(DeviceAddress address, std::uint64_t bytes) override {
        mapped_.unreserve(address, bytes);
    }
    SourceResult map(DeviceAddress address, std::uint64_t bytes, std::uint64_t piece) override;
    SourceResult unmap(DeviceAddress address, std::uint64_t bytes) override {
        return mapped_.unmap(address, bytes);
    }
    SourceResult alias(const PieceRun* runs, std::uint32_t count) override;
    SourceResult drop_alias(DeviceAddress address, std::uint64_t bytes) override {
        return mapped_.drop_alias(address, bytes);
    }

    VmmSource& mapped() { return mapped_; }

    void set_total_bytes(std::uint64_t bytes) { total_bytes_ = bytes; }

  private:
    void look_for_unseen_work();

    Process& process_;
    ContextPool& owner_;
    VmmSource mapped_;
    std::uint64_t total_bytes_ = 0;
    std::atomic<ProcessMemory::Device> measured_{nullptr};
};

} // namespace cachealloc::shim
