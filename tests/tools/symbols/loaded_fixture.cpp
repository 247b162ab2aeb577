#include "tests/tools/symbols/loaded_fixture.h"

#include <catch2/catch.hpp>
#include <dlfcn.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

namespace cachealloc::tools {

LoadedFixture::LoadedFixture(const std::string& variant)
    : path_(std::string(SYMBOL_FIXTURES) + "/" + variant + "/libfixture.so"),
      handle_(dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL)), build_id_(build_id_of(path_)) {
    INFO(path_);
    REQUIRE(handle_ != nullptr);
    link_map* map = nullptr;
    REQUIRE(dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0);
    bias_ = map->l_addr;
}

LoadedFixture::~LoadedFixture() {
    dlclose(handle_);
}

FixturePlace LoadedFixture::call(const char* function) const {
    auto* entry = reinterpret_cast<FixturePlace (*)()>(dlsym(handle_, function));
    REQUIRE(entry != nullptr);
    return entry();
}

std::uint64_t LoadedFixture::offset(const FixturePlace& place) const {
    return reinterpret_cast<std::uint64_t>(place.address) - bias_;
}

std::vector<std::uint8_t> build_id_of(const std::string& path) {
    elf_version(EV_CURRENT);
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(descriptor >= 0);
    Elf* elf = elf_begin(descriptor, ELF_C_READ, nullptr);
    const void* bytes = nullptr;
    const ssize_t length = dwelf_elf_gnu_build_id(elf, &bytes);
    std::vector<std::uint8_t> id;
    if (length > 0) {
        const auto* first = static_cast<const std::uint8_t*>(bytes);
        id.assign(first, first + length);
    }
    elf_end(elf);
    close(descriptor);
    return id;
}

} // namespace cachealloc::tools
