#pragma once

#include "tests/simcuda/control.h"

#include <catch2/catch.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace control = simcuda::control;

inline int host_object = 0; // Memory that CUDA knows nothing of.

/// An allocation that ends with its scope.
struct Buffer {
    explicit Buffer(size_t bytes) { REQUIRE(cudaMalloc(&address, bytes) == cudaSuccess); }
    ~Buffer() { cudaFree(address); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* address = nullptr;
};
