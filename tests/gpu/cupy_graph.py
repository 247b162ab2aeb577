"""CuPy's stream capture, unchanged: a graph of element-wise kernels, a reduction and a copy, replayed
while arrays come and go beside it. With --no-pool every array is a cudaMalloc and a cudaFree.
"""

import argparse
import sys


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--no-pool", action="store_true")
    args = options.parse_args()
    import cupy as cp
    import numpy as np
    try:
        if cp.cuda.runtime.getDeviceCount() == 0:
            raise RuntimeError("no device")
    except Exception:
        print("SKIP cupy_graph: no GPU")
        return 77
    if args.no_pool:
        cp.cuda.set_allocator(None)
    count = 1 << 18
    x = cp.arange(count, dtype=cp.int64)
    y = cp.empty_like(x)
    total = cp.empty((), dtype=cp.int64)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()

    def work():
        cp.multiply(x, 3, out=y)
        cp.add(y, 1, out=x)
        cp.remainder(x, 1000003, out=x)
        cp.sum(x, out=total)

    with stream:
        work()  # compiles the kernels; captures must not
    stream.synchronize()
    expected = (np.arange(count, dtype=np.int64) * 3 + 1) % 1000003
    with stream:
        stream.begin_capture()
        cp.multiply(x, 3, out=y)
        cp.add(y, 1, out=x)
        cp.remainder(x, 1000003, out=x)
        graph = stream.end_capture()
        for step in range(6):
            graph.launch(stream)
            beside = cp.full(count, step, dtype=cp.int64)
            beside += 1
            del beside
            expected = (expected * 3 + 1) % 1000003
        cp.sum(x, out=total)
    stream.synchronize()
    got = cp.asnumpy(x)
    right = bool((got == expected).all()) and int(total) == int(expected.sum())
    print("sum", int(total), "right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
