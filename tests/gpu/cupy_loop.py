"""CuPy with its memory pool off: every array is a cudaMalloc and a cudaFree.

The arithmetic is on integers, so the result can be checked exactly against NumPy; a device buffer
that another one overwrote shows as a wrong sum. Time goes to stderr.
"""

import argparse
import json
import sys
import time

import numpy as np

import turn_taking

MODULUS = 1_000_003


def iterate(xp, state, iterations):
    """The same operations on either library; each line makes temporaries of several sizes."""
    n = state.size
    sums = []
    for i in range(iterations):
        part = state[: n - (i % 7) * 1000]
        mixed = (part * 31 + i) % MODULUS
        turned = xp.concatenate((mixed[1:], mixed[:1]))
        state[: part.size] = (turned + part) % MODULUS
        if i % 25 == 24:
            folded = state[: n // 1000 * 1000].reshape(-1, 1000).sum(axis=0)
            sums.append(folded.sum())
    return state, sums


def take_turns(cp, seed):
    """One pass of the wanted number of iterations a turn; its sums stand for losses."""
    def work(iterations):
        times, sums = [], []
        for _ in range(2):
            begin = time.perf_counter()
            state, sums = iterate(cp, cp.asarray(seed), iterations)
            cp.cuda.Device().synchronize()
            times.append((time.perf_counter() - begin) * 1e3)
        return {"ms": times, "losses": [int(value) for value in sums] + [int(state.sum())]}

    turn_taking.serve(work)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--iterations", type=int, default=300)
    options.add_argument("--size", type=int, default=250_000)
    options.add_argument("--own-pool", action="store_true", help="leave CuPy's memory pool on")
    options.add_argument("--turns", action="store_true", help="take turns (turn_taking.py)")
    args = options.parse_args()
    import cupy as cp
    try:
        if cp.cuda.runtime.getDeviceCount() == 0:
            raise RuntimeError("no device")
    except Exception:
        print("SKIP cupy_loop: no GPU")
        return 77
    if not args.own_pool:
        cp.cuda.set_allocator(None)

    seed = np.random.default_rng(7).integers(0, MODULUS, args.size, dtype=np.int64)
    iterate(cp, cp.asarray(seed), 25)  # compiles the kernels
    cp.cuda.Device().synchronize()
    if args.turns:
        take_turns(cp, seed)
        return 0
    begin = time.perf_counter()
    state, sums = iterate(cp, cp.asarray(seed), args.iterations)
    cp.cuda.Device().synchronize()
    elapsed = time.perf_counter() - begin
    expected_state, expected_sums = iterate(np, seed.copy(), args.iterations)

    got = [int(value) for value in sums]
    right = got == [int(v) for v in expected_sums]
    right = right and bool((cp.asnumpy(state) == expected_state).all())
    print("sums " + " ".join(map(str, got)))
    print("equal to numpy: " + ("yes" if right else "NO"))
    print("gpu-time: " + json.dumps({"unit": f"ms/{args.iterations} it", "median": elapsed * 1e3}),
          file=sys.stderr)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
