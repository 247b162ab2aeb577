// Kernels and variables that the program's static constructors register.
#include "tests/simcuda/runtime/kernels.h"

#include "tests/simcuda/runtime/state.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace simcuda::runtime {
namespace {

/// One fat binary of the program: an executable or a library has one per translation unit.
struct Image {
    const void* data = nullptr;
    std::map<unsigned long long, CUmodule> modules; ///< By the serial number of the context.
};

struct Symbol {
    Image* image = nullptr;
    std::string name; ///< As the compiler mangled it.
    std::map<unsigned long long, CUfunction> functions;
};

/// Invariant: an address of `symbols` is either a host stub or a host variable that a loaded
/// image registered; addresses of Symbol objects are the handles given out.
struct Registry {
    std::mutex mutex;
    std::map<Image*, std::unique_ptr<Image>> images;
    std::map<const void*, std::unique_ptr<Symbol>> symbols;
    std::map<const void*, Symbol*> handles;
};

Registry& registry() {
    static auto* instance = new Registry; // Never freed: used by exit handlers of the program.
    return *instance;
}

/// Loading code is no part of a capture that happens to be open.
class RelaxedCapture {
  public:
    explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
        driver_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    const Driver& driver_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

Symbol* find(Registry& all, const void* key) {
    auto by_stub = all.symbols.find(key);
    if (by_stub != all.symbols.end()) {
        return by_stub->second.get();
    }
    auto by_handle = all.handles.find(key);
    return by_handle != all.handles.end() ? by_handle->second : nullptr;
}

/// The module of `image` in the current context, and that context's serial number.
Result load(const Driver& driver, Image& image, unsigned long long& serial, CUmodule& module) {
    CUcontext current = nullptr;
    Result result = driver.cuCtxGetCurrent(&current);
    if (result.ok()) {
        // Handles of contexts come back after a reset; serial numbers do not.
        result = driver.cuCtxGetId(current, &serial);
    }
    if (!result.ok()) {
        return result;
    }
    auto found = image.modules.find(serial);
    if (found != image.modules.end()) {
        module = found->second;
        return cudaSuccess;
    }
    result = driver.cuModuleLoadData(&module, image.data);
    if (result.ok()) {
        image.modules[serial] = module;
    }
    return result;
}

void add_symbol(void** image_handle, const void* host_address, const char* name) {
    Registry& all = registry();
    std::lock_guard lock(all.mutex);
    auto symbol = std::make_unique<Symbol>();
    symbol->image = reinterpret_cast<Image*>(image_handle);
    symbol->name = name;
    all.handles[symbol.get()] = symbol.get();
    all.symbols[host_address] = std::move(symbol);
}

} // namespace

Result kernel_function(const Driver& driver, const void* kernel, CUfunction& function) {
    Registry& all = registry();
    std::lock_guard lock(all.mutex);
    Symbol* symbol = find(all, kernel);
    if (!symbol) {
        return cudaErrorInvalidDeviceFunction;
    }
    RelaxedCapture relaxed(driver);
    unsigned long long serial = 0;
    CUmodule module = nullptr;
    Result result = load(driver, *symbol->image, serial, module);
    if (!result.ok()) {
        return result;
    }
    auto found = symbol->functions.find(serial);
    if (found != symbol->functions.end()) {
        function = found->second;
        return cudaSuccess;
    }
    result = driver.cuModuleGetFunction(&function, module, symbol->name.c_str());
    if (result.ok()) {
        symbol->functions[serial] = function;
    }
    return result;
}

Result kernel_handle(const void* host_stub, cudaKernel_t& handle) {
    Registry& all = registry();
    std::lock_guard lock(all.mutex);
    auto found = all.symbols.find(host_stub);
    if (found == all.symbols.end()) {
        return cudaErrorInvalidDeviceFunction;
    }
    handle = reinterpret_cast<cudaKernel_t>(found->second.get());
    return cudaSuccess;
}

Result variable_address(const Driver& driver, const void* host_variable, CUdeviceptr& address,
                        size_t& bytes) {
    Registry& all = registry();
    std::lock_guard lock(all.mutex);
    auto found = all.symbols.find(host_variable);
    if (found == all.symbols.end()) {
        return cudaErrorInvalidSymbol;
    }
    Symbol& symbol = *found->second;
    RelaxedCapture relaxed(driver);
    unsigned long long serial = 0;
    CUmodule module = nullptr;
    Result result = load(driver, *symbol.image, serial, module);
    if (!result.ok()) {
        return result;
    }
    return driver.cuModuleGetGlobal(&address, &bytes, module, symbol.name.c_str());
}

} // namespace simcuda::runtime

using simcuda::runtime::Image;
using simcuda::runtime::Registry;
using simcuda::runtime::registry;

// What nvcc's start-up code calls. Prototypes: crt/host_runtime.h, an internal header.
extern "C" {

void** __cudaRegisterFatBinary(void* fat_binary) {
    Registry& all = registry();
    std::lock_guard lock(all.mutex);
    auto image = std::make_unique<Image>();
    image->data = fat_binary;
    Image* key = image.get();
    all.images[key] = std::move(image);
    return reinterpret_cast<void**>(key);
}

void __cudaRegisterFatBinaryEnd(void**) {}

// Runs in exit handlers and at dlclose. The driver may be gone already: its modules die with it.
void __cudaUnregisterFatBinary(void** handle) {
    Registry& all = registry();
    std::lock_guard lock(all.mutex);
    auto* image = reinterpret_cast<Image*>(handle);
    for (auto it = all.symbols.begin(); it != all.symbols.end();) {
        if (it->second->image == image) {
            all.handles.erase(it->second.get());
            it = all.symbols.erase(it);
        } else {
            ++it;
        }
    }
    all.images.erase(image);
}

char __cudaInitModule(void**) {
    return 1;
}

void __cudaRegisterFunction(void** handle, const char* host_stub, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
    simcuda::runtime::add_symbol(handle, host_stub, name);
}

void __cudaRegisterVar(void** handle, char* host_variable, char*, const char* name, int, size_t,
                       int, int) {
    simcuda::runtime::add_symbol(handle, host_variable, name);
}

} // extern "C"
