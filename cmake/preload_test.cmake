# cachealloc_add_preload_test(
#     NAME <name>
#     COMMAND <program or target> [arguments...]
#     [SHIM <target> | SHIM NONE]      default cachealloc; NONE runs the program natively
#     [INSTRUMENTED]                   the program is built with the preset's sanitizer (our C++ is)
#     [REAL_CUDA]                      leave LD_LIBRARY_PATH alone: the machine's own libcuda.so.1
#     [PRELOAD_BEFORE <library>...]    other libraries, in front of the shim
#     [PRELOAD_AFTER <library>...]     and behind it
#     [LABELS <label>...]              default sim
#     [ENV <NAME=value>...]            more environment; ASAN_OPTIONS etc. are added to, not replaced
#     [TIMEOUT <seconds>])             default 120
#
# Adds a ctest test that runs COMMAND as it is under LD_PRELOAD, on the simulated CUDA unless
# REAL_CUDA says otherwise. It works the same in every preset. In a sanitizer preset the sanitizer's
# runtime is preloaded first, also with SHIM NONE: the simulated CUDA is instrumented as well, and
# g++'s shared ASan ends any process in which it is not the first library. Leaks are not looked for,
# since the program is not ours; tests linked against our own code run without this function and keep
# leak detection. Everything else is left to set_tests_properties (PASS_REGULAR_EXPRESSION, ...).
# An INSTRUMENTED program brings the runtime itself, so that with SHIM NONE nothing is preloaded: g++'s
# libtsan alone, preloaded, crashes every shell that the program starts. Exit status 77 means skipped.
# Recordings go to traces/ of the build folder, unless ENV says where.
set(CACHEALLOC_TEST_TRACES ${CMAKE_BINARY_DIR}/traces)
file(REMOVE_RECURSE ${CACHEALLOC_TEST_TRACES}) # those that ran out of memory are kept
file(MAKE_DIRECTORY ${CACHEALLOC_TEST_TRACES})
function(cachealloc_add_preload_test)
    cmake_parse_arguments(PARSE_ARGV 0 arg "REAL_CUDA;INSTRUMENTED" "NAME;SHIM;TIMEOUT"
        "COMMAND;PRELOAD_BEFORE;PRELOAD_AFTER;LABELS;ENV")
    if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_COMMAND)
        message(FATAL_ERROR "cachealloc_add_preload_test: NAME and COMMAND are needed; "
            "not understood: '${arg_UNPARSED_ARGUMENTS}'")
    endif()
    if(NOT arg_SHIM)
        set(arg_SHIM cachealloc)
    endif()
    if(NOT arg_LABELS)
        set(arg_LABELS sim)
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()

    if(NOT arg_ENV MATCHES "CACHEALLOC_TRACE")
        list(APPEND arg_ENV CACHEALLOC_TRACE_DIR=${CACHEALLOC_TEST_TRACES})
    endif()

    if(CACHEALLOC_SANITIZE)
        math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}") # TSan takes up to ten times as long
    endif()

    set(preload ${CACHEALLOC_SANITIZER_RUNTIME} ${arg_PRELOAD_BEFORE})
    if(arg_INSTRUMENTED AND arg_SHIM STREQUAL "NONE")
        set(preload ${arg_PRELOAD_BEFORE})
    endif()
    if(NOT arg_SHIM STREQUAL "NONE")
        list(APPEND preload $<TARGET_FILE:${arg_SHIM}>)
    endif()
    list(APPEND preload ${arg_PRELOAD_AFTER})
    list(JOIN preload ":" preload)

    set(change
        "ASAN_OPTIONS=path_list_prepend:detect_leaks=0:protect_shadow_gap=0"
        "UBSAN_OPTIONS=path_list_prepend:print_stacktrace=1"
        "TSAN_OPTIONS=path_list_prepend:second_deadlock_stack=1")
    if(preload)
        list(APPEND change "LD_PRELOAD=set:${preload}")
    endif()
    if(NOT arg_REAL_CUDA)
        list(APPEND change "LD_LIBRARY_PATH=path_list_prepend:${CMAKE_BINARY_DIR}/simcuda")
    endif()

    add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
    set_tests_properties(${arg_NAME} PROPERTIES
        LABELS "${arg_LABELS}"
        TIMEOUT ${arg_TIMEOUT}
        SKIP_RETURN_CODE 77
        ENVIRONMENT "${arg_ENV}"
        ENVIRONMENT_MODIFICATION "${change}")
endfunction()
