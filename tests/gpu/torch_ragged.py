"""Training whose shapes change from step to step, taking turns (turn_taking.py) or once with --steps:
a GPT with sequences of 64 to 511 tokens, or ResNet-50 with pictures of changing size. The shapes come
from a seed: every process meets the same ones in the same order.

Every step reports its loss as an exact hexadecimal float. With PyTorch's own allocator each answer
also holds what that says of itself. --device cpu tries the script itself.
"""

import argparse
import json
import os
import random
import sys
import time

# cuBLAS is only deterministic with a fixed workspace; must be set before the first handle exists.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch.utils.deterministic  # noqa: E402
from torch import nn  # noqa: E402

import turn_taking  # noqa: E402
from torch_gpt import Gpt  # noqa: E402


class RaggedGpt(Gpt):
    """The model of torch_gpt.py for sequences of any length up to its own."""

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places[:length]
        for block in self.blocks:
            x = block(x, self.mask[:length, :length])
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(into, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(inplace=True), nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity() if stride == 1 and into == out else nn.Sequential(
            nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50(classes):
    """ResNet-50 with random weights, spelt out: torchvision may be missing."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    into = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(into, width, stride if block == 0 else 1))
            into = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))


class GptSteps:
    def __init__(self, args, device):
        self.device, self.batch = device, args.batch or 8
        self.model = RaggedGpt(8192, args.width, 8, args.layers, 512).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        source = torch.Generator().manual_seed(99)
        self.data = torch.randint(8192, (4, self.batch, 513), generator=source)
        self.lengths = random.Random(args.seed)
        self.number = 0

    def loss(self):
        length = self.lengths.randint(64, 511)
        batch = self.data[self.number % len(self.data), :, :length + 1].to(self.device)
        self.number += 1
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(batch[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())


class ResnetSteps:
    def __init__(self, args, device):
        self.device, self.batch = device, args.batch or 32
        self.model = resnet50(1000).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        source = torch.Generator().manual_seed(5)
        self.pictures = torch.randn(self.batch, 3, 320, 320, generator=source)
        self.labels = torch.randint(1000, (self.batch,), generator=source).to(device)
        self.sizes = random.Random(args.seed)

    def loss(self):
        size = self.sizes.randrange(128, 321, 32)
        pictures = self.pictures[:, :, :size, :size].to(self.device)
        return F.cross_entropy(self.model(pictures), self.labels)


# Of torch.cuda.memory_stats(), by the names of an answer.
OWN_STATISTICS = {
    "live": "allocated_bytes.all.peak", "reserved": "reserved_bytes.all.peak",
    "requested": "requested_bytes.all.peak", "mapped": "reserved_bytes.all.allocated",
    "device_allocs": "num_device_alloc", "device_frees": "num_device_free",
    "retries": "num_alloc_retries"}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", choices=("gpt", "resnet"), default="gpt")
    options.add_argument("--steps", type=int, help="run once instead of taking turns")
    options.add_argument("--seed", type=int, default=2026)
    options.add_argument("--device", default="cuda")
    options.add_argument("--batch", type=int)
    options.add_argument("--layers", type=int, default=6)
    options.add_argument("--width", type=int, default=512)
    args = options.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("SKIP torch_ragged: no GPU")
        return 77
    torch.manual_seed(1234)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling empty tensors would hide a read of memory that nothing wrote, and cost kernels.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    device = torch.device(args.device)
    own = device.type == "cuda" and os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1"
    steps_of = (ResnetSteps if args.model == "resnet" else GptSteps)(args, device)

    def work(steps):
        times, losses = [], []
        for _ in range(steps):
            begin = time.perf_counter()
            loss = steps_of.loss()
            steps_of.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            steps_of.optimizer.step()
            losses.append(loss.item().hex())  # waits for the step
            times.append((time.perf_counter() - begin) * 1e3)
        stats = torch.cuda.memory_stats() if own else {}
        return {"ms": times, "losses": losses,
                "own": {name: stats.get(key, 0) for name, key in OWN_STATISTICS.items()}
                if own else None}

    if args.steps:
        print(json.dumps(work(args.steps)["losses"]))
    else:
        turn_taking.serve(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
