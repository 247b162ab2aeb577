// A fixture library in this process: where it lies and where its functions were called.
#pragma once

#include "tests/tools/symbols/fixture.h"

#include <cstdint>
#include <string>
#include <vector>

namespace cachealloc::tools {

/// One library of the fixtures, loaded while the object lives.
class LoadedFixture {
  public:
    /// `variant` is the folder that it lies in. Ends the test if it cannot be loaded.
    explicit LoadedFixture(const std::string& variant);
    ~LoadedFixture();
    LoadedFixture(const LoadedFixture&) = delete;
    LoadedFixture& operator=(const LoadedFixture&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const std::vector<std::uint8_t>& build_id() const { return build_id_; }
    /// Calls the function of that name.
    [[nodiscard]] FixturePlace call(const char* function) const;
    /// The address in the file of a place.
    [[nodiscard]] std::uint64_t offset(const FixturePlace& place) const;

  private:
    std::string path_;
    void* handle_;
    std::uint64_t bias_ = 0;
    std::vector<std::uint8_t> build_id_;
};

/// The build-id in a file, empty if it has none.
[[nodiscard]] std::vector<std::uint8_t> build_id_of(const std::string& path);

} // namespace cachealloc::tools
