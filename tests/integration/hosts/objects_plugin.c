/* A library with one function that calls back. Built with two sizes of frame: the two are the same
 * byte for byte but for these sizes and what the unwind table says of them, so that one loaded in
 * the other's place has another rule for the same return address. */
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

__asm__("    .text\n"
        "    .globl plugin_call\n"
        "    .type plugin_call, @function\n"
        "plugin_call:\n" /* (void (*function)(void*), void* argument) */
        "    .cfi_startproc\n"
        "    subq $" TEXT(
            FRAME) ", %rsp\n"
                   "    .cfi_adjust_cfa_offset " TEXT(
                       FRAME) "\n"
                              "    movq %rdi, %rax\n"
                              "    movq %rsi, %rdi\n"
                              "    call *%rax\n"
                              "    addq $" TEXT(
                                  FRAME) ", %rsp\n"
                                         "    .cfi_adjust_cfa_offset -" TEXT(
                                             FRAME) "\n"
                                                    "    ret\n"
                                                    "    .cfi_endproc\n"
                                                    "    .size plugin_call, . - plugin_call\n");
