"""Trains a small GPT-like model and prints every step's loss as an exact hexadecimal float.

Two runs with the same software on the same GPU print the same bytes, whichever allocator serves
them; a byte of a tensor that another tensor overwrote shows as a different loss. Times go to
stderr (they differ from run to run).

With PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is a cudaMalloc and a cudaFree.
"""

import argparse
import hashlib
import json
import os
import sys
import time

# cuBLAS is only deterministic with a fixed workspace; must be set before the first handle exists.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.utils.deterministic  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402


class Block(nn.Module):
    """Pre-norm transformer block; attention spelt out, as its plain operators are deterministic."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, length):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--layers", type=int, default=6)
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--length", type=int, default=512)
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--vocabulary", type=int, default=8192)
    args = options.parse_args()
    if not torch.cuda.is_available():
        print("SKIP torch_gpt: no GPU")
        return 77

    torch.manual_seed(1234)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling empty tensors would hide a read of memory that nothing wrote, and cost kernels.
    torch.utils.deterministic.fill_uninitialized_memory = False

    model = Gpt(args.vocabulary, args.width, 8, args.layers, args.length).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    # The data come from the host's generator: the same on every device.
    source = torch.Generator().manual_seed(99)
    data = torch.randint(args.vocabulary, (4, args.batch, args.length + 1), generator=source)

    losses, times = [], []
    for step in range(args.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        batch = data[step % len(data)].cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)

    for step, value in enumerate(losses):
        print(f"step {step} loss {value.hex()}")
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(f"parameters sha256 {digest.hexdigest()}")
    # The first steps load kernels and settle every allocator's cache.
    settled = sorted(times[min(5, len(times) - 1):])
    cached = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1"
    report = {"unit": "ms/step", "median": settled[len(settled) // 2] * 1e3,
              "min": settled[0] * 1e3, "first": times[0] * 1e3, "own_cache": cached}
    if cached:
        report["torch_peak_reserved"] = torch.cuda.max_memory_reserved()
    print("gpu-time: " + json.dumps(report), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
