#pragma once

#include "core/pool/memory_source.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

/// Which memory lies behind which addresses, where pieces are mapped once and a second time. Memory
/// has numbers of its own, which nothing else has, so that what two addresses share is seen. Each
/// function returns what is wrong with the call, or null. Not thread-safe.
class SimulatedMappings {
  public:
    using Address = cachealloc::DeviceAddress;
    static constexpr std::uint64_t kGranule = cachealloc::kGranule;

    struct Span {
        Address address;
        std::uint64_t bytes;
        bool overlaps(const Span& other) const {
            return address < other.address + other.bytes && other.address < address + bytes;
        }
    };

    Address reserve(std::uint64_t bytes) {
        const Address at = next_address_;
        next_address_ += bytes + kGranule;
        return at;
    }
    const char* map(Address address, std::uint64_t bytes, std::uint64_t piece) {
        const bool odd = bytes == 0 || bytes % piece != 0 || piece % kGranule != 0;
        for (std::uint64_t i = 0; i < bytes; i += kGranule) {
            if (!memory_.emplace(address + i, next_memory_).second) return "mapped twice";
            next_memory_ += kGranule;
        }
        for (std::uint64_t i = 0; i < bytes; i += piece)
            pieces_[address + i] = piece;
        return odd || address % kGranule != 0 ? "odd piece" : nullptr;
    }
    const char* may_unmap(Address address, std::uint64_t bytes) const {
        if (!whole_pieces(address, bytes)) return "unmapped what is no whole piece";
        for (const auto& [at, size] : aliases_) {
            for (const Span& other : spans(at, size)) {
                for (const Span& span : spans(address, bytes)) {
                    if (span.overlaps(other)) return "unmapped while it is mapped elsewhere";
                }
            }
        }
        return nullptr;
    }
    void unmap(Address address, std::uint64_t bytes) {
        for (std::uint64_t i = 0; i < bytes; i += kGranule) {
            memory_.erase(address + i);
            pieces_.erase(address + i);
        }
    }
    const char* may_alias(const cachealloc::PieceRun* runs, std::uint32_t count) const {
        const bool whole = std::all_of(runs, runs + count, [this](const cachealloc::PieceRun& run) {
            return whole_pieces(run.address, run.bytes);
        });
        return whole ? nullptr : "no whole piece aliased";
    }
    Address alias(const cachealloc::PieceRun* runs, std::uint32_t count) {
        std::vector<Address> memory;
        for (std::uint32_t i = 0; i < count; ++i) {
            for (std::uint64_t done = 0; done < runs[i].bytes; done += kGranule)
                memory.push_back(memory_[runs[i].address + done]);
        }
        const Address base = reserve(memory.size() * kGranule);
        for (std::size_t i = 0; i < memory.size(); ++i)
            memory_[base + i * kGranule] = memory[i];
        aliases_[base] = memory.size() * kGranule;
        return base;
    }
    const char* may_drop(Address address, std::uint64_t bytes) const {
        const auto found = aliases_.find(address);
        return found != aliases_.end() && found->second == bytes ? nullptr : "no such alias";
    }
    void drop(Address address, std::uint64_t bytes) {
        for (std::uint64_t i = 0; i < bytes; i += kGranule)
            memory_.erase(address + i);
        aliases_.erase(address);
    }

    /// The memory behind addresses; of what was never mapped here, the addresses themselves.
    std::vector<Span> spans(Address address, std::uint64_t bytes) const {
        std::vector<Span> all;
        while (bytes != 0) {
            const Address granule = address / kGranule * kGranule;
            const std::uint64_t part = std::min(bytes, granule + kGranule - address);
            const auto found = memory_.find(granule);
            const Address there =
                found == memory_.end() ? address : found->second + (address - granule);
            if (!all.empty() && all.back().address + all.back().bytes == there) {
                all.back().bytes += part;
            } else {
                all.push_back({there, part});
            }
            address += part;
            bytes -= part;
        }
        return all;
    }
    bool used() const { return next_memory_ != kFirstMemory; }
    std::size_t aliases() const { return aliases_.size(); }

  private:
    static constexpr Address kFirstMemory = 0x100000000000;

    bool whole_pieces(Address address, std::uint64_t bytes) const {
        Address at = address;
        for (auto piece = pieces_.find(address);
             piece != pieces_.end() && piece->first == at && at < address + bytes; ++piece)
            at += piece->second;
        return at == address + bytes;
    }

    std::map<Address, Address> memory_; ///< by granule
    std::map<Address, std::uint64_t> pieces_;
    std::map<Address, std::uint64_t> aliases_;
    Address next_memory_ = kFirstMemory;
    Address next_address_ = 0x300000000000;
};
