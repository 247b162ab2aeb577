"""The requests of oversize.cu through PyTorch: tensors of 1.5 and 1.8 GiB take turns on a device that
is full otherwise, then 2 GiB are wanted. One line of JSON says what was served, and what PyTorch's own
allocator did for it. With --held a small tensor lies in each cached block.
"""

import argparse
import gc
import json
import os
import sys

import torch

GIB = 1 << 30


def take(size):
    """A tensor, or None where there is no memory."""
    try:
        return torch.full((size,), 7, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return None


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--held", action="store_true")
    args = options.parse_args()
    if not torch.cuda.is_available():
        print("SKIP torch_oversize: no GPU")
        return 77
    own = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1"
    sizes = [GIB // 2 * 3, GIB // 10 * 18]
    for i in range(4):
        tensor = take(sizes[i % 2])
        del tensor
    cached = [take(sizes[i % 2]) for i in range(5)]
    filler, size = [], GIB
    while size >= GIB // 32:
        tensor = take(size)
        if tensor is None:
            size //= 2
        else:
            filler.append(tensor)
        del tensor
    cached.clear()
    small = []
    if args.held:
        for i in range(5):
            cached.append(take(sizes[i % 2] // 16 * 15))
            small.append(take(GIB // 16))
        cached.clear()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats() if own else {}
    held = torch.cuda.memory_reserved() - torch.cuda.memory_allocated() if own else 0
    tensor = take(2 * GIB)
    after = torch.cuda.memory_stats() if own else {}
    kept = all(bool((one == 7).all().item()) for one in filler[-8:] + small if one is not None)
    print(json.dumps({
        "served": tensor is not None, "kept": kept, "cached_mib": held >> 20,
        "flushes": after.get("num_alloc_retries", 0) - before.get("num_alloc_retries", 0),
        "device_frees": after.get("num_device_free", 0) - before.get("num_device_free", 0)}))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
