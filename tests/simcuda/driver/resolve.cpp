// The table of entry points and cuGetProcAddress in both shapes. This file knows addresses only,
// no prototypes, so that one macro can declare every entry point.
#include <cstring>

#define __CUDA_API_VERSION_INTERNAL
#include "guard.h"

namespace simcuda {

#define SIM_ROW(symbol, base, since, per_thread) extern void address_of_##symbol() __asm__(#symbol);
#include "entries.def"
#undef SIM_ROW

namespace {

EntryRow* table() {
    static EntryRow rows[] = {
#define SIM_ROW(symbol, base, since, per_thread)                                                   \
    {#symbol, #base, since, per_thread, address_of_##symbol},
#include "entries.def"
#undef SIM_ROW
    };
    return rows;
}

CUresult find(const char* name, void** pfn, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
    if (name == nullptr || pfn == nullptr || (flags & ~cuuint64_t{3}) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int driver = static_cast<int>(World::get().setting("driver"));
    if (version > driver) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pfn = nullptr;
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const EntryRow* best = nullptr;
    bool known = false;
    for (unsigned i = 0; i < static_cast<unsigned>(Entry::count); ++i) {
        const EntryRow& r = table()[i];
        // One name came back under another: cuGraphInstantiateWithFlags is found by both.
        const bool alias = std::strcmp(r.symbol, "cuGraphInstantiateWithFlags") == 0 &&
                           std::strcmp(name, r.symbol) == 0 && driver >= 11040;
        if (!alias &&
            (std::strcmp(r.base, name) != 0 || r.since > driver || (r.per_thread && !per_thread))) {
            continue;
        }
        known = true;
        if (alias ? version < 11040 : r.since > version) {
            continue;
        }
        // The newest shape; of its two twins the one that was asked for.
        if (best == nullptr ||
            (r.per_thread == best->per_thread ? r.since > best->since : r.per_thread)) {
            best = &r;
        }
    }
    if (status != nullptr) {
        *status = best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known         ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                  : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    if (best != nullptr) {
        *pfn = reinterpret_cast<void*>(best->address);
    }
    return CUDA_SUCCESS;
}

} // namespace

EntryRow& row(Entry e) {
    return table()[static_cast<unsigned>(e)];
}

EntryRow* row(const char* symbol) {
    for (unsigned i = 0; i < static_cast<unsigned>(Entry::count); ++i) {
        if (std::strcmp(table()[i].symbol, symbol) == 0) {
            return &table()[i];
        }
    }
    return nullptr;
}

} // namespace simcuda

using namespace simcuda;

SIM_EXPORT CUresult cuGetProcAddress(const char* symbol, void** pfn, int version,
                                     cuuint64_t flags) {
    SIM_ENTER_QUIET(cuGetProcAddress);
    return find(symbol, pfn, version, flags, nullptr);
}

SIM_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int version,
                                        cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
    SIM_ENTER_QUIET(cuGetProcAddress_v2);
    return find(symbol, pfn, version, flags, status);
}

// The private tables that tools and runtimes ask for do not exist here.
SIM_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid*) {
    SIM_ENTER_QUIET(cuGetExportTable);
    if (table != nullptr) {
        *table = nullptr;
    }
    return CUDA_ERROR_NOT_FOUND;
}
