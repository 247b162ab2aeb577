#include "shim/real_dlsym.h"

#include <atomic>
#include <cstdint>
#include <elf.h>
#include <link.h>

// Read by the assembly of dlsym_stubs.S, which jumps through them.
extern "C" {
__attribute__((used)) std::atomic<cachealloc::shim::DlsymFunction> cachealloc_real_dlsym;
__attribute__((used)) std::atomic<cachealloc::shim::DlvsymFunction> cachealloc_real_dlvsym;
}

namespace cachealloc::shim {
namespace {

bool equal(const char* a, const char* b) {
    while (*a == *b && *a != '\0') {
        ++a;
        ++b;
    }
    return *a == *b;
}

// Whether the path ends in "/<file>".
bool has_file_name(const char* path, const char* file) {
    const char* name = path;
    for (const char* c = path; *c != '\0'; ++c) {
        if (*c == '/') name = c + 1;
    }
    return name != path && equal(name, file);
}

std::uint32_t gnu_hash(const char* name) {
    std::uint32_t hash = 5381;
    for (; *name != '\0'; ++name)
        hash = hash * 33 + static_cast<unsigned char>(*name);
    return hash;
}

// A symbol's address through DT_GNU_HASH, null if the object does not define it. Of several
// versions the first is taken; glibc's versions of dlsym share one address.
void* find_symbol(const link_map* object, const char* name) {
    const ElfW(Sym)* symbols = nullptr;
    const char* strings = nullptr;
    const std::uint32_t* table = nullptr;
    for (const ElfW(Dyn)* entry = object->l_ld; entry->d_tag != DT_NULL; ++entry) {
        // glibc has relocated these in place, except in the vDSO, which has no dlsym.
        const auto address = static_cast<std::uintptr_t>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            symbols = reinterpret_cast<const ElfW(Sym)*>(address);
        else if (entry->d_tag == DT_STRTAB)
            strings = reinterpret_cast<const char*>(address);
        else if (entry->d_tag == DT_GNU_HASH)
            table = reinterpret_cast<const std::uint32_t*>(address);
    }
    if (symbols == nullptr || strings == nullptr || table == nullptr) return nullptr;
    const std::uint32_t bucket_count = table[0];
    const std::uint32_t first_symbol = table[1];
    const std::uint32_t bloom_words = table[2];
    const std::uint32_t* buckets = table + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
    const std::uint32_t* chain = buckets + bucket_count;
    const std::uint32_t hash = gnu_hash(name);
    std::uint32_t symbol = bucket_count == 0 ? 0 : buckets[hash % bucket_count];
    if (symbol < first_symbol) return nullptr;
    for (;; ++symbol) {
        const std::uint32_t entry = chain[symbol - first_symbol]; // lowest bit: end of the bucket
        if ((entry | 1U) == (hash | 1U) && symbols[symbol].st_shndx != SHN_UNDEF &&
            equal(strings + symbols[symbol].st_name, name))
            return reinterpret_cast<void*>(object->l_addr + symbols[symbol].st_value);
        if ((entry & 1U) != 0) return nullptr;
    }
}

void* find_in_library(const char* library, const char* name) {
    for (const link_map* object = _r_debug.r_map; object != nullptr; object = object->l_next) {
        if (!has_file_name(object->l_name, library)) continue;
        if (void* address = find_symbol(object, name)) return address;
    }
    return nullptr;
}

void* no_dlsym(void*, const char*) {
    return nullptr;
}
void* no_dlvsym(void*, const char*, const char*) {
    return nullptr;
}

} // namespace

void* find_in_libc(const char* name) {
    void* address = find_in_library("libc.so.6", name);
    return address != nullptr ? address : find_in_library("libdl.so.2", name);
}

void find_real_dlsym() {
    if (cachealloc_real_dlsym.load(std::memory_order_acquire) != nullptr) return;
    void* dlvsym = find_in_libc("dlvsym");
    void* dlsym = find_in_libc("dlsym");
    cachealloc_real_dlvsym.store(dlvsym == nullptr ? no_dlvsym
                                                   : reinterpret_cast<DlvsymFunction>(dlvsym),
                                 std::memory_order_release);
    // Last: it says that both are there.
    cachealloc_real_dlsym.store(dlsym == nullptr ? no_dlsym
                                                 : reinterpret_cast<DlsymFunction>(dlsym),
                                std::memory_order_release);
}

void* real_dlsym(void* handle, const char* name) {
    find_real_dlsym();
    return cachealloc_real_dlsym.load(std::memory_order_acquire)(handle, name);
}

void* real_dlvsym(void* handle, const char* name, const char* version) {
    find_real_dlsym();
    return cachealloc_real_dlvsym.load(std::memory_order_acquire)(handle, name, version);
}

} // namespace cachealloc::shim
