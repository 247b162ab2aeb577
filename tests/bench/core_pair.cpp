// A fixed number of the core's pairs and nothing else, for a tool that counts instructions.
//   core_pair pair|churn COUNT
#include "tests/bench/null_platform.h"

#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
    using namespace cachealloc;
    const bool pairs = argc == 3 && std::strcmp(argv[1], "pair") == 0;
    const bool churn = argc == 3 && std::strcmp(argv[1], "churn") == 0;
    const long count = argc == 3 ? std::strtol(argv[2], nullptr, 10) : 0;
    if ((!pairs && !churn) || count <= 0) {
        std::fprintf(stderr, "usage: %s pair|churn COUNT\n", argv[0]);
        return 2;
    }
    bench::NullPool pool(OrderLevel::ordered);
    if (pairs) {
        for (long i = 0; i < count; ++i)
            pool.free(pool.allocate(4096));
    } else {
        bench::Churn work(pool, 1);
        for (long i = 0; i < count; ++i)
            work.step();
    }
    return 0;
}
