#include "shim/caller.h"

#include "shim/real_dlsym.h"

#include <atomic>

#include <dlfcn.h>
#include <link.h>

namespace cachealloc::shim {

FindObjectFunction find_object_function() {
    static constinit std::atomic<void*> function{nullptr};
    static constinit std::atomic<bool> looked{false};
    if (!looked.load(std::memory_order_acquire)) {
        function.store(find_in_libc("_dl_find_object"), std::memory_order_relaxed);
        looked.store(true, std::memory_order_release);
    }
    return reinterpret_cast<FindObjectFunction>(function.load(std::memory_order_relaxed));
}

const link_map* object_of(const void* address) {
    if (address == nullptr) return nullptr;
    if (const FindObjectFunction find = find_object_function()) {
        dl_find_object found;
        if (find(const_cast<void*>(address), &found) != 0) return nullptr;
        return found.dlfo_link_map;
    }
    Dl_info info;
    void* object = nullptr;
    if (dladdr1(address, &info, &object, RTLD_DL_LINKMAP) == 0) return nullptr;
    return static_cast<const link_map*>(object);
}

bool is_own(const void* address) {
    static const char here = 0;
    return object_of(address) == object_of(&here);
}

// Opening by the recorded name takes a reference and, unlike a look-up through the bare link map,
// is safe for objects that came in as a dependency (glibc gives those a search list only now).
LoadedObject::LoadedObject(const link_map* object) {
    if (object == nullptr) return;
    const bool main_program = object->l_name == nullptr || object->l_name[0] == '\0';
    handle_ = dlopen(main_program ? nullptr : object->l_name, RTLD_LAZY | RTLD_NOLOAD);
}

LoadedObject::LoadedObject(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {}

LoadedObject::~LoadedObject() {
    if (handle_ != nullptr) dlclose(handle_);
}

void* LoadedObject::find(const char* name) const {
    if (handle_ == nullptr) return nullptr;
    void* address = real_dlsym(handle_, name);
    return is_own(address) ? nullptr : address;
}

} // namespace cachealloc::shim
