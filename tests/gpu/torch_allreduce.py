"""Collectives of torch.distributed over NCCL on two GPUs, one process each: tensors of many sizes come
and go between all-reduces, all-gathers and reductions, and every result is checked exactly.

NCCL's settings are the environment's. Meant for PYTORCH_NO_CUDA_MEMORY_CACHING=1, where every tensor
is a cudaMalloc and a cudaFree while NCCL's own streams run.
"""

import argparse
import random
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world, port, rounds, results):
    """One rank: `rounds` exchanges; puts (rank, exchanges that were right, checksum) into results."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=world)
    sizes = random.Random(5)
    right, checksum = 0, 0
    for step in range(rounds):
        count = sizes.choice((16, 1000, 4096, 65536, 1 << 20, 3 << 20)) + step
        base = torch.arange(count, device=device, dtype=torch.int64) % 1009
        part = base * (rank + 1) + step
        dist.all_reduce(part)
        total = world * (world + 1) // 2
        good = bool((part == base * total + world * step).all().item())
        mine = base + rank
        parts = [torch.empty_like(base) for _ in range(world)]
        dist.all_gather(parts, mine)
        del mine  # freed while other streams may still be at work
        good = good and all(bool((parts[r] == base + r).all().item()) for r in range(world))
        handle = dist.all_reduce(parts[0], async_op=True)
        beside = torch.full((count,), step, device=device)
        beside.mul_(2)
        del beside
        handle.wait()
        good = good and bool((parts[0] == base * world).all().item())
        checksum = (checksum * 31 + int(part.sum().item())) % (1 << 61)
        right += good
    torch.cuda.synchronize()
    results.put((rank, right, checksum))
    dist.destroy_process_group()


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=60)
    args = options.parse_args()
    if torch.cuda.device_count() < 2:
        print("SKIP torch_allreduce: fewer than two GPUs")
        return 77
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, args=(2, port, args.rounds, results), nprocs=2, join=True)
    found = sorted(results.get() for _ in range(2))
    for rank, right, checksum in found:
        print(f"rank {rank}: {right} of {args.rounds} right, checksum {checksum}")
    return 0 if all(right == args.rounds for _, right, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main())
