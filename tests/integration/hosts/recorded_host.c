/* A C program, without libstdc++ and libgcc_s of its own, that uses CUDA and opens C++. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

static void* driver;

static void* look_up(const char* name) {
    void* function = dlsym(driver, name);
    if (function == NULL) printf("FAILED: %s\n", dlerror());
    return function;
}

int main(int argc, char** argv) {
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void* plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (driver == NULL || plugin == NULL) {
        printf("FAILED: %s\n", dlerror());
        return 1;
    }
    int (*init)(unsigned) = (int (*)(unsigned))look_up("cuInit");
    int (*retain)(void**, int) = (int (*)(void**, int))look_up("cuDevicePrimaryCtxRetain");
    int (*set)(void*) = (int (*)(void*))look_up("cuCtxSetCurrent");
    void* allocate = look_up("cuMemAlloc_v2");
    void* release = look_up("cuMemFree_v2");
    typedef int Run(void*, void*, int (*)(void*), void*);
    Run* run = (Run*)dlsym(plugin, "plugin_run_recorded");
    void* context = NULL;
    if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0) {
        puts("FAILED: no context");
        return 1;
    }
    for (int round = 0; round < 3; ++round) {
        int unwound = run(allocate, release, set, context);
        if (unwound != 12) {
            printf("FAILED: %d of 12 frames unwound\n", unwound);
            return 1;
        }
    }
    puts("host ok");
    return 0;
}
