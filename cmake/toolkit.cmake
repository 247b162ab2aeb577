# Which CUDA toolkit builds the project. CUDACXX or -DCMAKE_CUDA_COMPILER decide where given; then
# nvcc on PATH, CUDA_HOME, /usr/local/cuda, and last the toolkit that scripts/setup put into
# .toolkit/. The headers always come from the compiler's own toolkit: enable_language(CUDA) goes
# first, and find_package(CUDAToolkit) follows the compiler.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc
        PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin
              ${CMAKE_CURRENT_SOURCE_DIR}/.toolkit/nvidia/cu13/bin)
    if(NOT CMAKE_CUDA_COMPILER)
        message(FATAL_ERROR "No CUDA toolkit found; run scripts/setup first")
    endif()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
endif()
enable_language(CUDA)
# CMake 3.25.1, Debian 12's, stops at a toolkit without nvToolsExt (CUDA 13 has none) when a project
# asks for 3.25 or newer: it then sets a property of a target that it did not make.
set(asked ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit 12.5 REQUIRED)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${asked})

# The loader knows where a machine's own toolkit keeps libcudart, but not of .toolkit/. As a RUNPATH
# it comes after LD_LIBRARY_PATH, by which tests choose the simulated CUDA.
set(installed ${CMAKE_CURRENT_SOURCE_DIR}/.toolkit/nvidia/cu13)
if(CMAKE_CUDA_COMPILER STREQUAL "${installed}/bin/nvcc")
    add_link_options("$<$<LINK_LANGUAGE:CUDA>:LINKER:--enable-new-dtags,-rpath,${installed}/lib>")
endif()
