# CACHEALLOC_SANITIZE=address (with UBSan) | thread instruments everything written in C++ or C.
# CUDA programs stay as they are: they stand for unmodified applications, so the sanitizer's runtime
# must come in by LD_PRELOAD, as it would for a user. cmake/preload_test.cmake does that.
set(CACHEALLOC_SANITIZE "" CACHE STRING "empty, address (ASan and UBSan) or thread (TSan)")
set_property(CACHE CACHEALLOC_SANITIZE PROPERTY STRINGS "" address thread)

set(CACHEALLOC_SANITIZER_RUNTIME "") # what must be the first library of a preloaded process
if(CACHEALLOC_SANITIZE)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # clang links its runtimes statically into executables: a shared object has none to preload.
        message(FATAL_ERROR "CACHEALLOC_SANITIZE needs g++, whose sanitizer runtimes are shared")
    endif()
    if(CACHEALLOC_SANITIZE STREQUAL "address")
        set(flags -fsanitize=address,undefined -fno-sanitize-recover=undefined)
        set(runtime libasan.so)
    elseif(CACHEALLOC_SANITIZE STREQUAL "thread")
        set(flags -fsanitize=thread)
        set(runtime libtsan.so)
    else()
        message(FATAL_ERROR "CACHEALLOC_SANITIZE is '${CACHEALLOC_SANITIZE}': address or thread")
    endif()
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX,C>:${flags};-fno-omit-frame-pointer>")
    add_link_options("$<$<LINK_LANGUAGE:CXX,C>:${flags}>")
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${runtime}
        OUTPUT_VARIABLE CACHEALLOC_SANITIZER_RUNTIME OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${CACHEALLOC_SANITIZER_RUNTIME}")
        message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no ${runtime}")
    endif()
endif()
