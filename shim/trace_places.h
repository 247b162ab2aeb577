// Where the recording of this process is written.
//
// Invariant: without being named by the user a file is only ever made in a private directory: ours
// alone, mode 0700, no link. Environment variables do not count in processes with raised privileges
// (nothing is recorded there at all).
#pragma once

#include <array>
#include <cstddef>

namespace cachealloc::shim {

class TracePlaces {
  public:
    static constexpr std::size_t kPathBytes = 1024;
    static constexpr std::size_t kMost = 4; // $CACHEALLOC_TRACE_DIR and three private directories
    static constexpr std::size_t kKept = 16;

    // Looks at the environment and makes the private directories that are missing. Says on stderr
    // what it did not understand.
    TracePlaces();

    // What to try in turn; none of them exists yet, unless the user named it.
    const char* const* paths() const { return pointers_.data(); }
    std::size_t size() const { return size_; }

    // CACHEALLOC_TRACE named the file: it is kept, and made nowhere else.
    bool named() const { return named_; }
    // CACHEALLOC_TRACE_DIR is the first of the paths.
    bool directory_named() const { return directory_named_; }

    // Removes from the private directories all but the newest kKept files that dead processes of
    // this user have left there.
    void remove_old() const;

  private:
    using Path = std::array<char, kPathBytes>;

    void take_name(const char* pattern);
    void take_directory(const char* directory);
    void take_private(const char* base, bool memory);
    void add(const char* directory);

    std::array<Path, kMost> texts_{};
    std::array<const char*, kMost> pointers_{};
    std::size_t size_ = 0;
    std::array<Path, kMost> private_{}; // directories
    std::size_t privates_ = 0;
    bool named_ = false;
    bool directory_named_ = false;
};

// What the files are called after: the program's name, at most 64 printable characters.
void program_name(char* text, std::size_t room);

} // namespace cachealloc::shim
