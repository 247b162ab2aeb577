#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cachealloc::tools {

/// Where memory is: an address and the space in which it means something.
struct Place {
    std::uint64_t address = 0;
    std::uint8_t space = 0; ///< a trace::AddressSpace
    friend bool operator==(const Place&, const Place&) = default;
};

/// A hash table by place, in one array: millions of insertions and removals a second, where
/// std::unordered_map pays an allocation and two cache misses each.
///
/// Invariant: from a key's home to its slot no slot is empty (linear probing; removal shifts back).
/// References and iteration are invalidated by insert and erase.
template <class Value>
class FlatMap {
  public:
    FlatMap() : slots_(kLeast) {}

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }

    /// Null if it is not there. O(1).
    [[nodiscard]] const Value* find(const Place& key) const {
        const Slot& slot = slots_[locate(key)];
        return slot.used ? &slot.value : nullptr;
    }
    [[nodiscard]] Value* find(const Place& key) {
        Slot& slot = slots_[locate(key)];
        return slot.used ? &slot.value : nullptr;
    }

    /// Puts `value` there; false, with the old value replaced, if there was one. O(1) amortised.
    bool insert(const Place& key, const Value& value) {
        if ((size_ + 1) * 4 > slots_.size() * 3) grow();
        Slot& slot = slots_[locate(key)];
        const bool fresh = !slot.used;
        slot = {key, true, value};
        size_ += fresh ? 1 : 0;
        return fresh;
    }

    /// False if it is not there. O(1).
    bool erase(const Place& key) {
        std::size_t hole = locate(key);
        if (!slots_[hole].used) return false;
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t at = (hole + 1) & mask; slots_[at].used; at = (at + 1) & mask) {
            // What lies behind moves into the hole unless its home lies behind the hole too.
            const std::size_t from_home = (at - home(slots_[at].key)) & mask;
            if (from_home >= ((at - hole) & mask)) {
                slots_[hole] = std::move(slots_[at]);
                hole = at;
            }
        }
        slots_[hole] = Slot{};
        --size_;
        return true;
    }

    /// Calls `visit(key, value)` for all, in no order.
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const Slot& slot : slots_) {
            if (slot.used) visit(slot.key, slot.value);
        }
    }

  private:
    static constexpr std::size_t kLeast = 64; // a power of two, as every size
    struct Slot {
        Place key;
        bool used = false;
        Value value{};
    };

    [[nodiscard]] std::size_t home(const Place& key) const {
        std::uint64_t mixed = (key.address ^ std::uint64_t{key.space} << 56) * 0x9e3779b97f4a7c15;
        mixed ^= mixed >> 32;
        return static_cast<std::size_t>(mixed * 0xd6e8feb86659fd93 >> 20) & (slots_.size() - 1);
    }
    [[nodiscard]] std::size_t locate(const Place& key) const {
        std::size_t at = home(key);
        while (slots_[at].used && !(slots_[at].key == key))
            at = (at + 1) & (slots_.size() - 1);
        return at;
    }
    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (Slot& slot : old) {
            if (slot.used) slots_[locate(slot.key)] = std::move(slot);
        }
    }

    std::vector<Slot> slots_;
    std::size_t size_ = 0;
};

} // namespace cachealloc::tools
