// Which loaded object an address belongs to, and what that object would find by name.
#pragma once

#include <cstdint>

struct dl_find_object;
struct link_map;

namespace cachealloc::shim {

// The object that contains the address, null for none (generated code, for example). The result is
// valid while the object stays loaded. With glibc 2.35 or later no lock, no allocation: about 10
// ns.
const link_map* object_of(const void* address);

// _dl_find_object(), null before glibc 2.35: linking it would keep every process there from
// starting.
using FindObjectFunction = int (*)(void* address, dl_find_object* result);
FindObjectFunction find_object_function();

// A reference to a loaded object, given back at the end of the scope.
class LoadedObject {
  public:
    // Never loads anything. `object` may be null: an empty reference.
    explicit LoadedObject(const link_map* object);
    // By name or SONAME, if it is loaded.
    explicit LoadedObject(const char* name);
    ~LoadedObject();
    LoadedObject(const LoadedObject&) = delete;
    LoadedObject& operator=(const LoadedObject&) = delete;

    explicit operator bool() const { return handle_ != nullptr; }
    void* handle() const { return handle_; }
    // What the object and its dependencies define under that name, null for nothing or for
    // something of this library (as the main program sees it: its scope is everybody's).
    void* find(const char* name) const;

  private:
    void* handle_ = nullptr;
};

// Whether the address lies in this library.
bool is_own(const void* address);

} // namespace cachealloc::shim
