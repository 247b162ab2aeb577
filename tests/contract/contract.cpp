#include "tests/contract/contract.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ; // NOLINT: POSIX's

namespace contract {

namespace {

void print(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

bool environment_holds(const char* name, const char* text) {
    const char* const value = std::getenv(name);
    return value != nullptr && std::strstr(value, text) != nullptr;
}

unsigned char pattern(std::size_t i, std::uint32_t tag) {
    const std::uint32_t x = (static_cast<std::uint32_t>(i) + tag * 0x9E3779B9u) * 0x85EBCA6Bu;
    return static_cast<unsigned char>(x >> 24);
}

} // namespace

bool under_shim() {
    return environment_holds("LD_PRELOAD", "libcachealloc") &&
           !environment_holds("CACHEALLOC_CONF", "off") &&
           !environment_holds("CACHEALLOC_CONF", "pool:False");
}

bool free_waits() {
    return !under_shim() || !environment_holds("CACHEALLOC_CONF", "free:async");
}

bool free_finds_faults() {
    return !under_shim() || environment_holds("CACHEALLOC_CONF", "free:sync");
}

bool memory_is_mapped() {
    return under_shim() && environment_holds("CACHEALLOC_CONF", "expandable_segments:True");
}

void measured(const std::string& what, cudaError_t value) {
    print("measured: " + what + " = " + cudaGetErrorName(value));
}

void measured(const std::string& what, CUresult value) {
    const char* name = nullptr;
    cuGetErrorName(value, &name);
    print("measured: " + what + " = " + (name != nullptr ? name : "unknown"));
}

void measured(const std::string& what, long long value) {
    print("measured: " + what + " = " + std::to_string(value));
}

void skipped(const std::string& what, const std::string& why) {
    print("SKIP " + what + ": " + why);
}

Device::Device() {
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    REQUIRE(cudaFree(nullptr) == cudaSuccess);
    REQUIRE(cuCtxGetCurrent(&context_) == CUDA_SUCCESS);
    REQUIRE(context_ != nullptr);
}

Device::~Device() {
    cudaDeviceSynchronize();
    cudaGetLastError();
}

void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
    REQUIRE(memory != nullptr);
    return memory;
}

CUdeviceptr driver_allocate(std::size_t bytes) {
    CUdeviceptr memory = 0;
    REQUIRE(cuMemAlloc(&memory, bytes) == CUDA_SUCCESS);
    REQUIRE(memory != 0);
    return memory;
}

void fill(const void* memory, std::size_t bytes, std::uint32_t tag) {
    std::vector<unsigned char> host(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        host[i] = pattern(i, tag);
    REQUIRE(cuMemcpyHtoD(address(memory), host.data(), bytes) == CUDA_SUCCESS);
}

bool holds(const void* memory, std::size_t bytes, std::uint32_t tag) {
    std::vector<unsigned char> host(bytes);
    REQUIRE(cuMemcpyDtoH(host.data(), address(memory), bytes) == CUDA_SUCCESS);
    for (std::size_t i = 0; i < bytes; ++i) {
        if (host[i] != pattern(i, tag)) return false;
    }
    return true;
}

std::size_t free_memory() {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    REQUIRE(cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS);
    REQUIRE(free_bytes <= total);
    return free_bytes;
}

std::mt19937 random_source(const char* what) {
    const char* const text = std::getenv("CONTRACT_SEED");
    const unsigned seed = text != nullptr ? static_cast<unsigned>(std::atoi(text)) : 1;
    print(std::string("seed of ") + what + ": " + std::to_string(seed) + " (CONTRACT_SEED)");
    return std::mt19937(seed);
}

int run_alone(const std::string& name, const std::vector<std::string>& more) {
    std::string program = "/proc/" + std::to_string(getpid()) + "/exe";
    std::string arguments[] = {"contract", name, "--reporter", "compact"};
    std::vector<char*> argv;
    for (std::string& argument : arguments)
        argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::vector<std::string> added = more;
    std::vector<char*> envp;
    for (std::string& entry : added)
        envp.push_back(entry.data());
    for (char** entry = environ; *entry != nullptr; ++entry)
        envp.push_back(*entry);
    envp.push_back(nullptr);

    std::fflush(nullptr);
    pid_t child = 0;
    REQUIRE(posix_spawn(&child, program.c_str(), nullptr, nullptr, argv.data(), envp.data()) == 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

void limit_this_process(unsigned seconds) {
    alarm(seconds);
}

} // namespace contract
