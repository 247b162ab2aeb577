/* One exported function per SUBMIT row of entry_points.def: jumps to the driver's, with everything as
 * the program left it, unless a bit of cachealloc_submit_watch says that somebody wants to look.
 *
 * In assembly because a jump needs no prototype: the arguments stay where they are, the driver returns
 * to the program itself. While nobody watches the price is a test and two jumps. */
#if !defined(__x86_64__)
#error "submit stubs exist for x86-64 only"
#endif

    .text
    .hidden cachealloc_submit
    .hidden cachealloc_submit_watch
    .hidden cachealloc_submit_target
    .hidden cachealloc_unknown
    .hidden cachealloc_unknown_called
    .hidden cachealloc_unknown_target

/* Saves the arguments, calls `look` with them and the number in %eax, and jumps to what it returns.
 * Layout for `look`: six register arguments, the number, the return address, then the arguments that
 * the caller passed on the stack. Seven pushes align it. */
.macro seen name, look
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    pushq %rax
    .cfi_adjust_cfa_offset 8
    pushq %r9
    .cfi_adjust_cfa_offset 8
    pushq %r8
    .cfi_adjust_cfa_offset 8
    pushq %rcx
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    movq %rsp, %rdi
    movl %eax, %esi
    call \look
    movq %rax, %r11
    popq %rdi
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    popq %r8
    .cfi_adjust_cfa_offset -8
    popq %r9
    .cfi_adjust_cfa_offset -8
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    jmpq *%r11
    .cfi_endproc
    .size \name, . - \name
.endm

    seen cachealloc_submit_seen, cachealloc_submit
    seen cachealloc_unknown_seen, cachealloc_unknown

    .set row, 0
.macro stub name
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    cmpl $0, cachealloc_submit_watch(%rip)
    jnz 1f
    jmpq *(cachealloc_submit_target + 8 * row)(%rip)
1:  movl $row, %eax
    jmp cachealloc_submit_seen
    .cfi_endproc
    .size \name, . - \name
    .set row, row + 1
.endm

#define PASS(name, kind, stream)
#define CALL(name, kind, stream, params)
#define HOOK(name, kind, stream, params, args)
#define SUBMIT(name, kind, stream) stub name;
#include "shim/entry_points.def"

/* The stubs of entry points that the table lacks (unknown_entries.h): each stops once. */
    .globl cachealloc_unknown_stubs
    .hidden cachealloc_unknown_stubs
    .p2align 5
cachealloc_unknown_stubs:
    .set place, 0
.rept 256
    .p2align 5
    .cfi_startproc
    endbr64
    cmpb $0, (cachealloc_unknown_called + place)(%rip)
    je 1f
    jmpq *(cachealloc_unknown_target + 8 * place)(%rip)
1:  movl $place, %eax
    jmp cachealloc_unknown_seen
    .cfi_endproc
    .set place, place + 1
.endr

    .section .note.GNU-stack, "", @progbits
