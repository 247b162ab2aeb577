// Two processes: one exports device memory, the other opens it, checks it and writes to it. Memory
// that was allocated before the program first asked for a handle may be refused (a pool of growable
// memory cannot export it); what is allocated afterwards must work as natively.
//
// stdout: the content on both sides. stderr: what the calls returned. Status 1 if bytes were wrong
// or the later allocation could not be exported, 77 where this machine has no IPC.
//   --kib N (12288)
#include "tests/gpu/tagged.cuh"

#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::uint32_t kExported = 11;
constexpr std::uint32_t kImported = 12;
constexpr int kCannot = 40;

tagged::Count wrong_bytes(unsigned char* data, std::size_t bytes, std::uint32_t tag) {
    tagged::Count* counter = nullptr;
    tagged::Count wrong = 0;
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&counter), sizeof *counter));
    CUDA_CHECK(cudaMemset(counter, 0, sizeof *counter));
    tagged_check<<<tagged::kGrid, tagged::kBlock>>>(data, bytes, tag, 0, counter);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaMemcpy(&wrong, counter, sizeof wrong, cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(counter));
    return wrong;
}

void fill(unsigned char* data, std::size_t bytes, std::uint32_t tag) {
    tagged_fill<<<tagged::kGrid, tagged::kBlock>>>(data, bytes, tag);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaDeviceSynchronize());
}

// Status 0: the bytes were right, and are now the importer's.
int import(int from, std::size_t bytes) {
    cudaIpcMemHandle_t handle{};
    if (read(from, &handle, sizeof handle) != sizeof handle) return 0; // nothing was exported
    void* data = nullptr;
    const cudaError_t status = cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess) {
        std::fprintf(stderr, "ipc: import: %s\n", cudaGetErrorName(status));
        return kCannot;
    }
    const tagged::Count wrong = wrong_bytes(static_cast<unsigned char*>(data), bytes, kExported);
    if (wrong != 0) std::fprintf(stderr, "ipc: the importer saw %llu bytes wrong\n", wrong);
    fill(static_cast<unsigned char*>(data), bytes, kImported);
    CUDA_CHECK(cudaIpcCloseMemHandle(data));
    return wrong == 0 ? 0 : 1;
}

// What cudaIpcGetMemHandle returns for memory that holds the exporter's content.
cudaError_t ask(cudaIpcMemHandle_t* handle, unsigned char* data) {
    const cudaError_t status = cudaIpcGetMemHandle(handle, data);
    (void)cudaGetLastError();
    return status;
}

} // namespace

int main(int argc, char** argv) {
    const auto bytes = static_cast<std::size_t>(app::option(argc, argv, "--kib", 12288)) << 10;
    int ends[2] = {};
    REQUIRE_TRUE(pipe(ends) == 0);
    // Before either of them uses CUDA.
    const pid_t importer = fork();
    REQUIRE_TRUE(importer >= 0);
    if (importer == 0) {
        close(ends[1]);
        std::exit(import(ends[0], bytes));
    }
    close(ends[0]);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("SKIP ipc: no GPU");
        return 77;
    }
    unsigned char* early = nullptr;
    unsigned char* later = nullptr;
    cudaIpcMemHandle_t handle{};
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&early), bytes));
    fill(early, bytes, kExported);
    const cudaError_t first = ask(&handle, early);
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&later), bytes));
    fill(later, bytes, kExported);
    const cudaError_t second = ask(&handle, later);
    std::fprintf(stderr, "gpu-ipc: {\"early\": \"%s\", \"later\": \"%s\"}\n",
                 cudaGetErrorName(first), cudaGetErrorName(second));
    if (second == cudaSuccess) {
        REQUIRE_TRUE(write(ends[1], &handle, sizeof handle) == sizeof handle);
    }
    close(ends[1]);
    int status = 0;
    REQUIRE_TRUE(waitpid(importer, &status, 0) == importer);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot) {
        std::puts("SKIP ipc: memory cannot be opened in another process here");
        return 77;
    }
    const bool imported = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const tagged::Count kept = wrong_bytes(early, bytes, kExported);
    const tagged::Count shared =
        wrong_bytes(later, bytes, second == cudaSuccess ? kImported : kExported);
    std::printf("importer %s; %llu bytes wrong in what was not shared, %llu in what was\n",
                imported ? "ended well" : "failed", kept, shared);
    CUDA_CHECK(cudaFree(early));
    CUDA_CHECK(cudaFree(later));
    return second == cudaSuccess && imported && kept == 0 && shared == 0 ? 0 : 1;
}
