#include "shim/escapes.h"

#include "shim/driver.h"
#include "shim/log.h"
#include "shim/object_walk.h"
#include "shim/real_dlsym.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include <link.h>

namespace cachealloc::shim {

namespace {

struct Bypass {
    const char* name;
    std::uintptr_t address; // 0: not known
};

struct Search {
    Bypass bypasses[3];
    unsigned long long added = 0; // how many objects were ever loaded
    bool found = false;
};

struct Tables {
    const ElfW(Sym) * symbols = nullptr;
    const char* strings = nullptr;
    const ElfW(Rela) * slots = nullptr;
    std::size_t bytes = 0; // of the slots' entries
};

// glibc has relocated the addresses in a dynamic section in place, except in the vDSO, which has no
// such table.
Tables tables_of(const dl_phdr_info& object) {
    Tables tables;
    for (unsigned i = 0; i < object.dlpi_phnum; ++i) {
        if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const auto* entry =
            reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; ++entry) {
            const auto address = static_cast<std::uintptr_t>(entry->d_un.d_ptr);
            if (entry->d_tag == DT_SYMTAB) {
                tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
            } else if (entry->d_tag == DT_STRTAB) {
                tables.strings = reinterpret_cast<const char*>(address);
            } else if (entry->d_tag == DT_JMPREL) {
                tables.slots = reinterpret_cast<const ElfW(Rela)*>(address);
            } else if (entry->d_tag == DT_PLTRELSZ) {
                tables.bytes = entry->d_un.d_val;
            }
        }
    }
    return tables;
}

// Called under the loader's lock; reads only what the loader itself has relocated.
int look(dl_phdr_info* object, std::size_t, void* argument) {
    auto& search = *static_cast<Search*>(argument);
    search.added = object->dlpi_adds;
    const Tables tables = tables_of(*object);
    if (tables.symbols == nullptr || tables.strings == nullptr || tables.slots == nullptr) return 0;
    const std::size_t count = tables.bytes / sizeof(ElfW(Rela));
    for (std::size_t i = 0; i < count; ++i) {
        const ElfW(Rela)& slot = tables.slots[i];
        const auto symbol = ELF64_R_SYM(slot.r_info);
        if (ELF64_R_TYPE(slot.r_info) != R_X86_64_JUMP_SLOT || symbol == 0) continue;
        const char* const name = tables.strings + tables.symbols[symbol].st_name;
        for (const Bypass& bypass : search.bypasses) {
            if (bypass.address == 0 || std::strcmp(name, bypass.name) != 0) continue;
            std::uintptr_t bound = 0;
            std::memcpy(&bound, reinterpret_cast<const void*>(object->dlpi_addr + slot.r_offset),
                        sizeof bound);
            if (bound == bypass.address) search.found = true;
        }
    }
    return 0;
}

int count_added(dl_phdr_info* object, std::size_t, void* argument) {
    *static_cast<unsigned long long*>(argument) = object->dlpi_adds;
    return 1; // the first one knows
}

template <class Function>
std::uintptr_t address_of(Function* function) {
    return reinterpret_cast<std::uintptr_t>(function);
}

} // namespace

bool escapes_present() {
    static std::atomic<bool> seen{false};
    static std::atomic<unsigned long long> looked_at{0};
    if (seen.load(std::memory_order_relaxed)) return true;
    unsigned long long added = 0;
    walk_objects(count_added, &added);
    if (added == looked_at.load(std::memory_order_relaxed)) return false;
    find_real_dlsym();
    Search search{{{"dlsym", address_of(cachealloc_real_dlsym.load(std::memory_order_acquire))},
                   {"dlvsym", address_of(cachealloc_real_dlvsym.load(std::memory_order_acquire))},
                   {"cuInit", address_of(real.cuInit.get())}}};
    walk_objects(look, &search);
    looked_at.store(search.added, std::memory_order_relaxed);
    if (!search.found) return false;
    log_once("deepbind", LogLevel::warning,
             "a library was loaded with RTLD_DEEPBIND: what it asks of CUDA passes this allocator "
             "by; work it submits counts as unordered from now on");
    seen.store(true, std::memory_order_relaxed);
    return true;
}

} // namespace cachealloc::shim
