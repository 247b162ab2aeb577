// A signal each 200 us whose handler allocates and frees, while the program does so from 40,000
// places in turn, each with a return address of its own: handlers arrive in the middle of
// unwinding, of recording and of whatever else is under way. The driver must stand for being
// interrupted (null_driver.cpp does), and the pool be out of the way (pool:False): a lock that the
// interrupted call holds would hang the handler, natively too.
//   storm ROUNDS
#include "tests/integration/crash/driver_user.h"

#include <csignal>
#include <sys/time.h>

#if !defined(__x86_64__)
#error "the forty thousand calls are written for x86-64"
#endif

// void forty_thousand_calls(void (*function)()): 40,000 call instructions one after another.
extern "C" void forty_thousand_calls(void (*function)());
asm(R"(
    .text
    .globl forty_thousand_calls
    .type forty_thousand_calls, @function
forty_thousand_calls:
    .cfi_startproc
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset %rbx, -16
    mov %rdi, %rbx
    .rept 40000
    call *%rbx
    .endr
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size forty_thousand_calls, . - forty_thousand_calls
)");

namespace {

const crash::Driver* g_driver = nullptr;
volatile std::sig_atomic_t g_handled = 0;

void pair(std::size_t bytes) {
    crash::Address address = 0;
    if (g_driver->allocate(&address, bytes) != 0 || g_driver->release(address) != 0)
        crash::give_up("a pair");
}

void on_alarm(int) {
    pair(2222);
    g_handled = g_handled + 1;
}

void one_call() {
    pair(1111);
}

} // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 2;
    const crash::Driver driver;
    g_driver = &driver;
    struct sigaction action {};
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    crash::require(sigaction(SIGALRM, &action, nullptr) == 0, "sigaction");
    const itimerval each{{0, 200}, {0, 200}};
    crash::require(setitimer(ITIMER_REAL, &each, nullptr) == 0, "setitimer");
    int done = 0;
    while (done < rounds ||
           g_handled < 100) { // however fast the machine is, a hundred handlers ran
        forty_thousand_calls(one_call);
        ++done;
    }
    const itimerval none{};
    crash::require(setitimer(ITIMER_REAL, &none, nullptr) == 0, "setitimer");
    std::fprintf(stderr, "rounds %d, handled %d\n", done, static_cast<int>(g_handled));
    std::puts("storm ok");
    return 7;
}
