#include "core/record/trace_format.h"

#include <catch2/catch.hpp>

#include <set>
#include <string>

using namespace cachealloc::trace;

namespace {

/// The names of all values below `count`: none empty but that of 0, no two alike.
template <typename Value, typename Name>
void check_names(int count, Name name) {
    std::set<std::string> names;
    for (int value = 0; value < count; ++value) {
        INFO(value);
        const std::string text = name(static_cast<Value>(value));
        CHECK(text.empty() == (value == 0));
        CHECK(names.insert(text).second);
    }
    CHECK(std::string(name(static_cast<Value>(count))).empty());
    CHECK(std::string(name(static_cast<Value>(255))).empty());
}

} // namespace

TEST_CASE("trace names: each value has its own, and what is not known has none", "[record]") {
    check_names<CallName>(static_cast<int>(CallName::trim) + 1, call_name);
    check_names<EventKind>(static_cast<int>(EventKind::mark) + 1, kind_name);
    check_names<MemoryType>(kMemoryTypes, memory_name);
}

TEST_CASE("trace names: a name stands at its value's place", "[record]") {
    CHECK(std::string(call_name(CallName::mem_free_async)) == "cuMemFreeAsync");
    CHECK(std::string(call_name(CallName::mem_host_unregister)) == "cuMemHostUnregister");
    CHECK(std::string(call_name(CallName::trim)) == "trim");
    CHECK(std::string(kind_name(EventKind::free_completed)) == "free_completed");
    CHECK(std::string(kind_name(EventKind::out_of_memory)) == "out_of_memory");
    CHECK(std::string(memory_name(MemoryType::explicit_pool)) == "explicit_pool");
    CHECK(std::string(memory_name(MemoryType::mapping)) == "mapping");
}
