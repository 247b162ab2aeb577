// Kernels as host twins, modules, libraries, and host functions.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "../twin.h"
#include "launch.h"

using namespace simcuda;

namespace {

using Twin = void (*)(SimKernel*, void**);

// What a CUfunction or CUkernel stands for. Never freed, so that handles stay valid.
struct Function {
    std::string name;
    Twin twin = nullptr;
};

World& world() {
    return World::get();
}

std::map<std::string, Function>& functions() {
    static auto* const table = new std::map<std::string, Function>;
    return *table;
}

Function* function(const char* name) {
    const auto known = functions().find(name);
    if (known != functions().end()) {
        return &known->second;
    }
    void* twin = dlsym(RTLD_DEFAULT, (std::string("simcuda_twin_") + name).c_str());
    if (twin == nullptr) {
        return nullptr;
    }
    Function& f = functions()[name];
    f.name = name;
    f.twin = reinterpret_cast<Twin>(twin);
    return &f;
}

const Function* function_of(const void* handle) {
    for (const auto& [name, f] : functions()) {
        if (&f == handle) {
            return &f;
        }
    }
    return nullptr;
}

Work& work_of(SimKernel* k) {
    return *static_cast<Work*>(k->state);
}

// What was declared so far is done before the wait.
void declare_wait(SimKernel* k) {
    Work& work = work_of(k);
    for (Access& a : work.accesses) {
        a.early = true;
    }
    work.waits_for_front = true;
}
void declare_read(SimKernel* k, const void* p, std::size_t bytes) {
    work_of(k).accesses.push_back({reinterpret_cast<std::uintptr_t>(p), bytes, false});
}
void declare_write(SimKernel* k, void* p, std::size_t bytes) {
    work_of(k).accesses.push_back({reinterpret_cast<std::uintptr_t>(p), bytes, true});
}
void declare_duration(SimKernel* k, std::uint64_t ns) {
    work_of(k).duration = ns;
}
void declare_body(SimKernel* k, void (*run)(void*), const void* closure, std::size_t bytes) {
    // Aligned for anything a lambda may hold.
    auto copy =
        std::make_shared<std::vector<std::max_align_t>>(bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(copy->data(), closure, bytes);
    work_of(k).effect = [run, copy] { run(copy->data()); };
}

} // namespace

CUresult simcuda::launch(const StreamPtr& s, CUfunction handle, const Shape& shape, void** args,
                         bool programmatic) {
    const Function* f = function_of(handle);
    if (f == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (int i = 0; i < 3; ++i) {
        if (shape.grid[i] == 0 || shape.block[i] == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    Work work;
    work.label = "kernel " + f->name;
    work.kernel = true;
    work.programmatic = programmatic;
    work.duration = world().setting("kernel_ns");
    SimKernel k{};
    for (int i = 0; i < 3; ++i) {
        k.grid[i] = shape.grid[i];
        k.block[i] = shape.block[i];
    }
    k.state = &work;
    k.reads = declare_read;
    k.writes = declare_write;
    k.duration_ns = declare_duration;
    k.body = declare_body;
    k.waits_for_front = declare_wait;
    f->twin(&k, args);
    return submit(s, std::move(work));
}

CUresult simcuda::call_host(const StreamPtr& s, CUhostFn fn, void* data) {
    if (fn == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Work work;
    work.label = "host function";
    work.host_code = true;
    work.effect = [fn, data] { fn(data); };
    work.called = std::make_shared<const CUDA_HOST_NODE_PARAMS>(CUDA_HOST_NODE_PARAMS{fn, data});
    return submit(s, std::move(work));
}

namespace {

CUresult launch_kernel(bool pt, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, CUstream stream, void** args, void** extra,
                       bool programmatic = false) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    if (extra != nullptr) {
        return CUDA_ERROR_NOT_SUPPORTED; // a twin takes arguments one by one
    }
    return launch(s, f, {{gx, gy, gz}, {bx, by, bz}}, args, programmatic);
}

// An event of the launch itself fires while the kernel runs: whoever waits for it knows what the
// kernel came behind, and nothing of the kernel.
CUresult record_at_start(const StreamPtr& s, CUevent handle, int flags) {
    World& w = world();
    const EventPtr e = w.events.find(handle);
    if (e == nullptr || e->ctx != owner_of(s->ctx)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (flags != 0 || (e->flags & CU_EVENT_DISABLE_TIMING) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (s->capture != nullptr) {
        e->capture = s->capture;
        e->nodes = s->tail;
        e->op = nullptr;
        return CUDA_SUCCESS;
    }
    Work work;
    work.label = "an event of a launch";
    work.duration = 0;
    e->capture = nullptr;
    e->nodes.clear();
    e->op = w.submit_after(s->ctx, nullptr, std::move(work), s->front.after, false);
    return CUDA_SUCCESS;
}

CUresult launch_ex(bool pt, const CUlaunchConfig* c, CUfunction f, void** args, void** extra) {
    if (c == nullptr || (c->attrs == nullptr && c->numAttrs > 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const std::vector<CUlaunchAttribute> attributes(c->attrs, c->attrs + c->numAttrs);
    const bool programmatic =
        std::any_of(attributes.begin(), attributes.end(), [](const CUlaunchAttribute& a) {
            return a.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                   a.value.programmaticStreamSerializationAllowed != 0;
        });
    SIM_TRY(launch_kernel(pt, f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
                          c->blockDimZ, c->hStream, args, extra, programmatic));
    StreamPtr s;
    SIM_TRY(stream_of(c->hStream, pt, &s));
    for (const CUlaunchAttribute& a : attributes) {
        if (a.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
            SIM_TRY(record_at_start(s, a.value.programmaticEvent.event,
                                    a.value.programmaticEvent.flags));
        } else if (a.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            SIM_TRY(record_at_start(s, a.value.launchCompletionEvent.event,
                                    a.value.launchCompletionEvent.flags));
        }
    }
    return CUDA_SUCCESS;
}

CUresult host_function(bool pt, CUstream stream, CUhostFn fn, void* data) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    return call_host(s, fn, data);
}

CUresult callback(bool pt, CUstream stream, CUstreamCallback fn, void* data, unsigned flags) {
    StreamPtr s;
    SIM_TRY(stream_of(stream, pt, &s));
    if (fn == nullptr || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (s->capture != nullptr) {
        invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    Work work;
    work.label = "stream callback";
    work.host_code = true;
    const ContextPtr ctx = s->ctx;
    work.effect = [fn, stream, ctx, data] { fn(stream, ctx->fault(), data); };
    return submit(s, std::move(work));
}

// Any image is a module: its functions are the program's twins.
CUresult load(CUmodule* module, const void* image) {
    static std::uint64_t next = 0;
    ContextPtr ctx;
    SIM_TRY(current_context(&ctx));
    if (module == nullptr || image == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *module = reinterpret_cast<CUmodule>(0x1000 + 16 * ++next);
    return CUDA_SUCCESS;
}

CUresult find(const char* name, Function** f) {
    if (name == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *f = function(name);
    return *f == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

} // namespace

// For the simulated runtime library: the function of a kernel's host twin, null without one.
SIM_EXPORT CUfunction simcuda_function(const char* mangled_name) {
    const Lock hold(World::get().mutex);
    return reinterpret_cast<CUfunction>(function(mangled_name));
}

SIM_TWINS(cuLaunchKernel, cuLaunchKernel_ptsz, launch_kernel,
          (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
           unsigned int by, unsigned int bz, unsigned int, CUstream s, void** args, void** extra),
          f, gx, gy, gz, bx, by, bz, s, args, extra)
SIM_TWINS(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz, launch_kernel,
          (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
           unsigned int by, unsigned int bz, unsigned int, CUstream s, void** args),
          f, gx, gy, gz, bx, by, bz, s, args, nullptr)
SIM_TWINS(cuLaunchKernelEx, cuLaunchKernelEx_ptsz, launch_ex,
          (const CUlaunchConfig* c, CUfunction f, void** args, void** extra), c, f, args, extra)
SIM_TWINS(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, host_function,
          (CUstream s, CUhostFn fn, void* data), s, fn, data)
SIM_TWINS(cuStreamAddCallback, cuStreamAddCallback_ptsz, callback,
          (CUstream s, CUstreamCallback fn, void* data, unsigned int flags), s, fn, data, flags)

SIM_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    SIM_ENTER(cuModuleLoadData);
    return load(module, image);
}
SIM_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int,
                                       CUjit_option*, void**) {
    SIM_ENTER(cuModuleLoadDataEx);
    return load(module, image);
}
SIM_EXPORT CUresult cuModuleLoad(CUmodule* module, const char* file) {
    SIM_ENTER(cuModuleLoad);
    return load(module, file);
}
SIM_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
    SIM_ENTER(cuModuleLoadFatBinary);
    return load(module, image);
}
SIM_EXPORT CUresult cuModuleUnload(CUmodule) {
    SIM_ENTER(cuModuleUnload);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule, const char* name) {
    SIM_ENTER(cuModuleGetFunction);
    Function* f = nullptr;
    SIM_TRY(find(name, &f));
    *out = reinterpret_cast<CUfunction>(f);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**,
                                      unsigned int, CUlibraryOption*, void**, unsigned int) {
    SIM_ENTER(cuLibraryLoadData);
    if (library == nullptr || image == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *library = reinterpret_cast<CUlibrary>(std::uintptr_t{0x2000});
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuLibraryUnload(CUlibrary) {
    SIM_ENTER(cuLibraryUnload);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary, const char* name) {
    SIM_ENTER(cuLibraryGetKernel);
    Function* f = nullptr;
    SIM_TRY(find(name, &f));
    *out = reinterpret_cast<CUkernel>(f);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
    SIM_ENTER(cuKernelGetFunction);
    *out = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuFuncGetName(const char** name, CUfunction f) {
    SIM_ENTER(cuFuncGetName);
    const Function* known = function_of(f);
    if (known == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *name = known->name.c_str();
    return CUDA_SUCCESS;
}
SIM_EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
    SIM_ENTER(cuFuncSetAttribute);
    return CUDA_SUCCESS;
}
