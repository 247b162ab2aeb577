#include "shim/entry_points.h"

#include <catch2/catch.hpp>

#include <set>
#include <string>

using namespace cachealloc::shim;

namespace {

Entry entry(std::size_t i) {
    return static_cast<Entry>(i);
}

// "cuMemcpyAsync" for "cuMemcpyAsync_v2_ptsz".
std::string root(std::string name) {
    for (const char* suffix : {"_ptsz", "_ptds"}) {
        if (name.ends_with(suffix)) name.resize(name.size() - 5);
    }
    if (name.size() > 3 && name[name.size() - 3] == '_' && name[name.size() - 2] == 'v')
        name.resize(name.size() - 3);
    return name;
}

bool is_per_thread(const std::string& name) {
    return name.ends_with("_ptsz") || name.ends_with("_ptds");
}

} // namespace

TEST_CASE("every row is found by its exact name and by nothing else") {
    std::set<std::string> names;
    for (std::size_t i = 0; i < kEntryCount; ++i) {
        const std::string name = entry_name(entry(i));
        INFO(name);
        CHECK(names.insert(name).second);
        CHECK(find_entry(name.c_str()) == entry(i));
        CHECK(find_entry((name + "x").c_str()) == Entry::none);
        CHECK(find_entry((name + "_v9").c_str()) == Entry::none);
        const std::string shorter = name.substr(0, name.size() - 1);
        CHECK((find_entry(shorter.c_str()) == Entry::none || names.count(shorter) != 0 ||
               entry_name(find_entry(shorter.c_str())) == shorter));
    }
    CHECK(names.size() == kEntryCount);
}

TEST_CASE("names that only look like the driver's") {
    for (const char* name : {"", "c", "cu", "cu_", "cublasCreate_v2", "cudnnCreate",
                             "curl_easy_init", "cudaMalloc", "CuMemAlloc", "cuMemAlloc_v2 ", "cuZ"})
        CHECK(find_entry(name) == Entry::none);
}

TEST_CASE("hooks and rows point at each other") {
    std::size_t hooks = 0;
    for (std::size_t i = 0; i < kEntryCount; ++i) {
        const Hook hook = entry_hook(entry(i));
        if (hook == Hook::none) continue;
        ++hooks;
        CHECK(std::string(hook_name(hook)) == entry_name(entry(i)));
    }
    CHECK(hooks == kHookCount);
    CHECK(entry_hook(Entry::cuMemAlloc_v2) == Hook::cuMemAlloc_v2);
    CHECK(entry_hook(Entry::cuMemAlloc) == Hook::none); // the 32-bit ABI is another function
    CHECK(entry_hook(Entry::cuGetExportTable) == Hook::none);
    CHECK(entry_hook(Entry::cuDriverGetVersion) == Hook::none);
    CHECK(entry_hook(Entry::cuDeviceGetUuid_v2) == Hook::none);
}

TEST_CASE("kinds and streams are consistent") {
    for (std::size_t i = 0; i < kEntryCount; ++i) {
        const std::string name = entry_name(entry(i));
        INFO(name);
        const Kind kind = entry_kind(entry(i));
        const std::int8_t stream = entry_stream(entry(i));
        if (kind == Kind::submit || kind == Kind::allocate_async || kind == Kind::free_async)
            CHECK(stream != kStreamNone);
        if (is_per_thread(name)) {
            // The same call with another meaning of the null stream.
            const Entry plain = find_entry(name.substr(0, name.size() - 5).c_str());
            REQUIRE(plain != Entry::none);
            CHECK(entry_kind(plain) == kind);
            CHECK(entry_stream(plain) == stream);
            CHECK((entry_hook(plain) == Hook::none) == (entry_hook(entry(i)) == Hook::none));
        }
        if (stream == kStreamImplicit || stream == kStreamInStruct) CHECK(kind == Kind::submit);
        // cuGetProcAddress asks for names without a suffix.
        CHECK(find_entry(root(name).c_str()) != Entry::none);
    }
    CHECK(entry_stream(Entry::cuLaunchKernel) == 8);
    CHECK(entry_stream(Entry::cuLaunchKernelEx) == kStreamInStruct);
    CHECK(entry_stream(Entry::cuMemcpyHtoD_v2_ptds) == kStreamImplicit);
    CHECK(entry_stream(Entry::cuMemFreeAsync) == 1);
}
