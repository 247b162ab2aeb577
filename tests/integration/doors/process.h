// What the door tests ask about their own process.
#pragma once

#include <cstdint>
#include <dlfcn.h>
#include <string>

namespace doors {

// The file that the address belongs to, "" for none.
inline std::string file_of(const void* address) {
    Dl_info info{};
    if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
    const std::string path = info.dli_fname;
    return path.substr(path.rfind('/') + 1);
}

inline bool in_shim(const void* address) {
    return file_of(address).starts_with("libcachealloc");
}

// A counter of the shim's doors (the testing library exports them), ~0 without the shim.
inline std::uint64_t counter(const char* name) {
    using Counter = std::uint64_t (*)(const char*);
    const auto read =
        reinterpret_cast<Counter>(dlsym(RTLD_DEFAULT, "cachealloc_test_door_counter"));
    return read == nullptr ? ~std::uint64_t{0} : read(name);
}

using GetProcAddress = int (*)(const char*, void**, int, std::uint64_t);
using GetProcAddress2 = int (*)(const char*, void**, int, std::uint64_t, int*);
using NamedFunction = int (*)();

} // namespace doors
