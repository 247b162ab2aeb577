"""Training loops that take turns (turn_taking.py), or run once with --steps: GPT on data that are
already there, or ResNet with a DataLoader that pins its batches and copies that do not block.

Every step reports its loss as an exact hexadecimal float: runs with the same software on the same GPU
must agree bit for bit, whoever allocates. --device cpu tries the script itself.
"""

import argparse
import json
import os
import sys
import time

# cuBLAS is only deterministic with a fixed workspace; must be set before the first handle exists.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch.utils.data  # noqa: E402
import torch.utils.deterministic  # noqa: E402

import turn_taking  # noqa: E402
from torch_gpt import Gpt  # noqa: E402


class Pictures(torch.utils.data.Dataset):
    """Pictures made from a few random ones; the same for an index in every process."""

    def __init__(self, count, size):
        self.count = count
        source = torch.Generator().manual_seed(5)
        self.base = torch.randint(256, (16, 3, size, size), generator=source, dtype=torch.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.base[index % 16].roll(index // 16 % 32, dims=1)
        return picture, index * 7919 % 1000


class ResnetLoop:
    """One training step after another; the batches never end."""

    def __init__(self, args, device):
        import torchvision
        self.device = device
        self.model = getattr(torchvision.models, args.variant)().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        loader = torch.utils.data.DataLoader(
            Pictures(args.batch * 100000, args.size), batch_size=args.batch, num_workers=2,
            pin_memory=device.type == "cuda")
        self.batches = iter(loader)

    def step(self):
        pictures, labels = next(self.batches)
        pictures = pictures.to(self.device, non_blocking=True).float().div_(255)
        labels = labels.to(self.device, non_blocking=True)
        loss = F.cross_entropy(self.model(pictures), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss


class GptLoop:
    """The model of torch_gpt.py."""

    def __init__(self, args, device):
        self.device = device
        self.model = Gpt(8192, args.width, 8, args.layers, args.length).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        source = torch.Generator().manual_seed(99)
        self.data = torch.randint(8192, (4, 8, args.length + 1), generator=source)
        self.number = 0

    def step(self):
        batch = self.data[self.number % len(self.data)].to(self.device)
        self.number += 1
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(batch[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", choices=("gpt", "resnet"), default="gpt")
    options.add_argument("--steps", type=int, help="run once instead of taking turns")
    options.add_argument("--device", default="cuda")
    options.add_argument("--variant", default="resnet18")
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--size", type=int, default=112)
    options.add_argument("--layers", type=int, default=6)
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--length", type=int, default=512)
    options.add_argument("--history", choices=("python", "all"),
                         help="PyTorch records its own allocations, with stacks of this kind")
    args = options.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("SKIP torch_train: no GPU")
        return 77
    torch.manual_seed(1234)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling empty tensors would hide a read of memory that nothing wrote, and cost kernels.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    device = torch.device(args.device)
    if args.history:
        torch.cuda.memory._record_memory_history(stacks=args.history, max_entries=1_000_000)
    loop = (ResnetLoop if args.model == "resnet" else GptLoop)(args, device)

    def work(steps):
        times, losses = [], []
        for _ in range(steps):
            begin = time.perf_counter()
            losses.append(loop.step().item().hex())
            times.append((time.perf_counter() - begin) * 1e3)
        held = torch.cuda.max_memory_reserved() if device.type == "cuda" else 0
        return {"ms": times, "losses": losses, "torch_reserved": held}

    if args.steps:
        print(json.dumps(work(args.steps)["losses"]))
    else:
        turn_taking.serve(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
