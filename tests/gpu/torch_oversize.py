"""The requests of oversize.cu through PyTorch: tensors of 1.5 and 1.8 GiB take turns on a device that
is full otherwise, then 2 GiB are wanted; once with the cached memory wholly free ("whole"), once with
a small tensor in each part of it ("held"). One line of JSON says what was served, and what PyTorch's
own allocator did for it.
"""

import json
import os
import sys

import torch

GIB = 1 << 30


def take(size):
    """A tensor, or None where there is no memory."""
    try:
        return torch.full((size,), 7, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:  # with its cache off PyTorch passes CUDA's own error on
        if "out of memory" not in str(error):
            raise
        return None


def kept(tensor):
    """Whether both ends hold what was written; on a full device no temporary fits."""
    return all(bool((end.cpu() == 7).all()) for end in (tensor[:1 << 20], tensor[-(1 << 20):]))


def statistics():
    own = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1"
    return torch.cuda.memory_stats() if own else {}


def attempt(held):
    """Fills the device but for the cached memory, asks for 2 GiB; what came of it."""
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
    if held:
        for i in range(5):
            cached.append(take(sizes[i % 2] // 16 * 15))
            filler.append(take(GIB // 16))
        cached.clear()
    torch.cuda.synchronize()
    before = statistics()
    tensor = take(2 * GIB)
    after = statistics()
    live = [one for one in [*filler, tensor] if one is not None]

    def gained(key):
        return after.get(key, 0) - before.get(key, 0)

    return {"served": tensor is not None, "kept": all(kept(one) for one in live),
            "cached_mib": (before.get("reserved_bytes.all.current", 0) -
                           before.get("allocated_bytes.all.current", 0)) >> 20,
            "flushes": gained("num_alloc_retries"), "device_frees": gained("num_device_free")}


def main():
    if not torch.cuda.is_available():
        print("SKIP torch_oversize: no GPU")
        return 77
    answers = {}
    for held in (False, True):
        answers["held" if held else "whole"] = attempt(held)
        torch.cuda.empty_cache()
    print(json.dumps(answers))
    return 0 if all(one["kept"] for one in answers.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
