/* dlsym and dlvsym as every process under the preload sees them.
 *
 * The C library resolves RTLD_NEXT and RTLD_DEFAULT relative to its caller's return address, so what
 * is not ours to answer must reach it with the caller's own return address on the stack: by a jump.
 * Written in assembly because no compiler promises that jump at every optimisation level, with every
 * sanitizer and every instrumentation.
 *
 * cachealloc_decide_dl(v)sym returns the answer, or null to let the C library answer; it has made
 * sure that the real functions are known. */
#if !defined(__x86_64__)
#error "dlsym stubs exist for x86-64 only"
#endif

    .text

/* The three argument registers are saved for the jump; three pushes also align the stack. */
.macro stub name, decide, real
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    call \decide
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rax, %rax
    jz 1f
    ret
1:  jmpq *\real(%rip)
    .cfi_endproc
    .size \name, . - \name
.endm

    .hidden cachealloc_decide_dlsym
    .hidden cachealloc_decide_dlvsym
    .hidden cachealloc_real_dlsym
    .hidden cachealloc_real_dlvsym

    stub dlsym, cachealloc_decide_dlsym, cachealloc_real_dlsym
    stub dlvsym, cachealloc_decide_dlvsym, cachealloc_real_dlvsym

    .section .note.GNU-stack, "", @progbits
