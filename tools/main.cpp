#include "tools/commands/command_line.h"

int main(int argc, char** argv) {
    return cachealloc::tools::command_line(argc, argv);
}
