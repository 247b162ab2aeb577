/* A C program, without libstdc++, that opens C++ at run time. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
    void* plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (plugin == NULL) {
        printf("FAILED: %s\n", dlerror());
        return 1;
    }
    int (*run)(void) = (int (*)(void))dlsym(plugin, "plugin_run");
    for (int round = 0; round < 3; ++round) {
        int unwound = run();
        if (unwound != 12) {
            printf("FAILED: %d of 12 frames unwound\n", unwound);
            return 1;
        }
    }
    puts("host ok");
    return 0;
}
