// Python pickles, of the few opcodes that pytorch.org/memory_viz reads.
//
// Protocol 4 (the page refuses 5), no frames. Lists and dictionaries are filled in batches of at
// most 1000: the page takes a batch as the arguments of one call, and 200,000 are too many for it.
// Values that come again are named by their place in the memo, which also makes them one object for
// the reader.
//
// Invariant: between calls, the file so far is a pickle that lacks only its end.
#pragma once

#include "tools/exports/output_file.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cachealloc::tools {

/// A value's place in the memo, once it has one.
struct PickleMemo {
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    std::uint32_t index = kNone;
};

class PickleWriter {
  public:
    /// The largest integer that the page, which has no other numbers than doubles, holds exactly.
    static constexpr std::uint64_t kLargestExact = (std::uint64_t{1} << 53) - 1;

    explicit PickleWriter(OutputFile& output);

    /// The items of a list are written between open_list() and close_list(), item() before each.
    void open_list();
    void item() { next(kAppends); }
    void close_list();
    /// Likewise, key() before each value.
    void open_dict();
    void key(std::string_view name);
    void close_dict();

    /// Larger ones become kLargestExact.
    void integer(std::uint64_t value);
    void negative_one();
    void real(double value);
    void boolean(bool value);
    /// The two numbers as a tuple.
    void pair(std::uint64_t first, std::uint64_t second);
    /// Each text is written once. For texts that are few or come often.
    void text(std::string_view value);

    /// Writes the value again; false if it was not memorised yet. It must be complete.
    bool recall(const PickleMemo& memo);
    /// The value that was just completed gets a place.
    void memorise(PickleMemo& memo);

    /// Ends the pickle.
    void finish();

  private:
    static constexpr char kAppends = 'e';
    static constexpr char kSetItems = 'u';
    struct Level {
        std::uint32_t items = 0; ///< in the batch that is open
    };

    void next(char filled);
    void close(char filled);
    void get(std::uint32_t index);
    void little_endian(std::uint64_t value, int bytes);

    OutputFile& output_;
    std::vector<Level> levels_;
    std::unordered_map<std::string, std::uint32_t> texts_;
    std::string key_; ///< reused, so that a look-up makes no string
    std::uint32_t memo_size_ = 0;
};

} // namespace cachealloc::tools
