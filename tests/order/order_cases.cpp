// order_cases <case>: runs one case; without an argument lists them.
#include "tests/order/cases.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace order {

void stop(Status status, const char* what, int line) {
    std::fprintf(stderr, "order_cases: line %d: %s: %s\n", line,
                 status == kCallFailed ? "failed" : "not so", what);
    std::fflush(nullptr);
    std::_Exit(status);
}

Byte* allocate(std::size_t bytes) {
    void* block = nullptr;
    ORDER_CHECK(cudaMalloc(&block, bytes));
    return static_cast<Byte*>(block);
}

void release(Byte* block) {
    ORDER_CHECK(cudaFree(block));
}

cudaStream_t make_stream(unsigned flags) {
    cudaStream_t stream = nullptr;
    ORDER_CHECK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

void drain() {
    ORDER_CHECK(cudaDeviceSynchronize());
}

Byte* reuse(Byte* block, std::size_t bytes) {
    release(block);
    Byte* const again = allocate(bytes);
    ORDER_REQUIRE(again == block, kNotReused);
    return again;
}

} // namespace order

int main(int argc, char** argv) {
    const std::string_view wanted = argc > 1 ? argv[1] : "";
    for (const auto cases :
         {order::rule_cases(), order::capture_cases(), order::capture_end_cases(),
          order::matrix_cases(), order::thread_cases(), order::context_cases(), order::hang_cases(),
          order::limit_cases(), order::ordered_cases(), order::async_cases(),
          order::mempool_cases(), order::host_cases(), order::host_quiet_cases()}) {
        for (const order::Case& one : cases) {
            if (wanted.empty()) std::puts(one.name);
            if (wanted != one.name) continue;
            one.run();
            std::printf("%s: fine\n", one.name);
            return order::kFine;
        }
    }
    if (!wanted.empty()) std::fprintf(stderr, "order_cases: no case \"%s\"\n", argv[1]);
    return wanted.empty() ? order::kFine : 1;
}
