#include "tools/symbols/function_names.h"

#include <cxxabi.h>
#include <dwarf.h>

#include <cstdlib>
#include <cstring>
#include <memory>

namespace cachealloc::tools {
namespace {

constexpr std::size_t kLongestMangled = 16384;
constexpr std::size_t kLongestName = 2048;
/// Origins lead to specifications and no further, unless the file is meant to lead astray.
constexpr int kMostOrigins = 8;

std::string cut(std::string name) {
    if (name.size() > kLongestName) {
        name.resize(kLongestName - 3);
        name += "...";
    }
    return name;
}

/// The entry that stands where the function was declared: its parents are its namespaces.
Dwarf_Die declaration_of(Dwarf_Die die) {
    for (int step = 0; step < kMostOrigins; ++step) {
        Dwarf_Attribute attribute;
        Dwarf_Die next;
        if ((dwarf_attr(&die, DW_AT_abstract_origin, &attribute) == nullptr &&
             dwarf_attr(&die, DW_AT_specification, &attribute) == nullptr) ||
            dwarf_formref_die(&attribute, &next) == nullptr) {
            break;
        }
        die = next;
    }
    return die;
}

/// "outer::inner::" before the function's own name.
std::string scope_of(Dwarf_Die& function) {
    Dwarf_Die declared = declaration_of(function);
    Dwarf_Die* scopes = nullptr;
    const int count = dwarf_getscopes_die(&declared, &scopes);
    const std::unique_ptr<Dwarf_Die, decltype(&std::free)> owner(scopes, &std::free);
    std::string scope;
    for (int index = 1; index < count; ++index) {
        const int tag = dwarf_tag(&scopes[index]);
        const bool type =
            tag == DW_TAG_class_type || tag == DW_TAG_structure_type || tag == DW_TAG_union_type;
        if (type || tag == DW_TAG_namespace) {
            const char* name = dwarf_diename(&scopes[index]);
            const char* unnamed = type ? "{unnamed}" : "(anonymous namespace)";
            scope.insert(0, std::string(name != nullptr ? name : unnamed) + "::");
        }
        if (scope.size() > kLongestName) {
            break;
        }
    }
    return scope;
}

} // namespace

std::string demangled(const char* name) {
    if (std::strncmp(name, "_Z", 2) == 0 && std::strlen(name) < kLongestMangled) {
        int status = 0;
        const std::unique_ptr<char, decltype(&std::free)> text(
            abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
        if (status == 0 && text != nullptr) {
            // The compiler's variants of a function are all that function.
            std::string whole(text.get());
            return cut(whole.substr(0, whole.find(" [clone ")));
        }
    }
    return cut(name);
}

const char* FunctionNames::linkage_name(Dwarf_Die& function) {
    Dwarf_Attribute attribute;
    for (const unsigned which : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
        if (dwarf_attr_integrate(&function, which, &attribute) != nullptr) {
            return dwarf_formstring(&attribute);
        }
    }
    return nullptr;
}

const std::string& FunctionNames::of(Dwarf_Die& function) {
    const auto [place, added] = names_.try_emplace(function.addr);
    if (added) {
        if (const char* linkage = linkage_name(function)) {
            place->second = demangled(linkage);
        } else if (const char* name = dwarf_diename(&function)) {
            place->second = cut(scope_of(function) + name);
        }
    }
    return place->second;
}

} // namespace cachealloc::tools
