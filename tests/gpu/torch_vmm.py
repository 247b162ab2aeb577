"""PyTorch operations that look at memory itself, or work in buffers of their own: free memory, pointer
attributes, pinned copies, the workspaces of cuBLAS, cuDNN, cuFFT and cuSOLVER; then tensors of random
sizes on two streams, each with content that is checked when it goes. Prints the same wherever it runs.
--compile: a compiled function instead.
"""

import argparse
import ctypes
import hashlib
import os
import random
import sys

# cuBLAS is only deterministic with a fixed workspace; must be set before the first handle exists.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

MIB = 1 << 20


def digest(tensor):
    return hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()[:16]


class PointerAttributes(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("device", ctypes.c_int), ("device_pointer", ctypes.c_void_p),
                ("host_pointer", ctypes.c_void_p), ("reserved", ctypes.c_long * 8)]


def runtime():
    """The libcudart that PyTorch has loaded."""
    for line in open("/proc/self/maps"):
        path = line.rstrip("\n").partition("/")[2]
        if "libcudart" in path:
            return ctypes.CDLL("/" + path)
    return None


class Foreign:
    """Device memory that PyTorch is told of by its address alone."""

    def __init__(self, tensor):
        self.keep = tensor
        self.__cuda_array_interface__ = {
            "shape": (tensor.numel(),), "typestr": "<f4", "data": (tensor.data_ptr(), False),
            "version": 3}


def free_memory():
    torch.cuda.synchronize()
    before, total = torch.cuda.mem_get_info()
    tensor = torch.zeros(512 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    during, again = torch.cuda.mem_get_info()
    del tensor
    torch.cuda.synchronize()
    after, _ = torch.cuda.mem_get_info()
    print(f"free memory: total {total // MIB} MiB, the same {total == again}, "
          # More than that where it came out of a larger segment that was wholly free.
          f"512 MiB gone {before - during >= 448 * MIB}, "
          f"back {abs(after - before) < 64 * MIB}")


def attributes():
    cudart = runtime()
    tensor = torch.arange(3 * MIB, dtype=torch.float32, device="cuda")
    if cudart:
        for name, address in (("start", tensor.data_ptr()), ("inside", tensor.data_ptr() + 5 * MIB)):
            found = PointerAttributes()
            status = cudart.cudaPointerGetAttributes(ctypes.byref(found), ctypes.c_void_p(address))
            print(f"attributes, {name}: status {status}, type {found.type}, device {found.device}, "
                  f"same address {found.device_pointer == address}, host {found.host_pointer}")
    foreign = torch.as_tensor(Foreign(tensor), device="cuda")
    print(f"foreign: {foreign.device}, same {foreign.data_ptr() == tensor.data_ptr()}, "
          f"{digest(foreign)}")
    shared = torch.from_dlpack(tensor)
    print(f"dlpack: {shared.device}, {digest(shared)}")


def pinned_copies():
    source = torch.Generator().manual_seed(7)
    results = []
    for size in (1, 1000, MIB, 5 * MIB + 12):
        host = torch.randint(256, (size,), dtype=torch.uint8, generator=source).pin_memory()
        device = host.to("cuda", non_blocking=True)
        back = torch.empty(size, dtype=torch.uint8).pin_memory()
        back.copy_(device.flip(0), non_blocking=True)
        torch.cuda.synchronize()
        results.append(bool((back.flip(0) == host).all()))
    print(f"pinned copies: {results}")


def workspaces():
    source = torch.Generator().manual_seed(11)
    a = torch.randn(1024, 768, generator=source).cuda()
    b = torch.randn(768, 1536, generator=source).cuda()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        product = a.to(dtype) @ b.to(dtype)
        print(f"cuBLAS {dtype}: {digest(product.float())}")
    layer = torch.nn.Linear(768, 1536).cuda()
    with torch.no_grad():
        layer.weight.copy_(b.t())
        layer.bias.zero_()
    print(f"cuBLASLt, fused: {digest(F.gelu(layer(a), approximate='tanh'))}")
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    picture = torch.randn(8, 16, 96, 96, generator=source).cuda().requires_grad_()
    weight = torch.randn(32, 16, 5, 5, generator=source).cuda().requires_grad_()
    F.conv2d(picture, weight, padding=2, stride=2).square().sum().backward()
    print(f"cuDNN convolution: {digest(picture.grad)} {digest(weight.grad)}")
    torch.manual_seed(3)
    lstm = torch.nn.LSTM(64, 128, 2).cuda()
    steps = torch.randn(50, 8, 64, generator=source).cuda()
    print(f"cuDNN LSTM: {digest(lstm(steps)[0])}")
    print(f"cuFFT: {digest(torch.view_as_real(torch.fft.rfft2(picture.detach())))}")
    square = a[:512, :512] @ a[:512, :512].t() + 600 * torch.eye(512, device="cuda")
    print(f"cuSOLVER: {digest(torch.linalg.cholesky(square))}")
    values = torch.randint(1 << 30, (3 * MIB,), generator=source).cuda()
    print(f"sort, unique: {digest(values.sort()[0])} {torch.unique(values % 1000).numel()}")


def churn(rounds=400, most=1 << 30):
    """Tensors of 1 KiB to 192 MiB come and go; every byte of each is its number."""
    source = random.Random(2026)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    live, held, wrong = [], 0, torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(rounds):
        size = int(2 ** source.uniform(10, 27.5))
        while live and (held + size > most or source.random() < 0.4):
            tensor, value, stream = live.pop(source.randrange(len(live)))
            held -= tensor.numel()
            with torch.cuda.stream(stream):
                bad = (tensor != value).sum()
            torch.cuda.current_stream().wait_stream(stream)
            wrong += bad
            bad.record_stream(torch.cuda.current_stream())
            del tensor, bad
        stream = streams[source.randrange(2)]
        with torch.cuda.stream(stream):
            live.append((torch.full((size,), number % 251, dtype=torch.uint8, device="cuda"),
                         number % 251, stream))
        held += size
    torch.cuda.synchronize()
    for tensor, value, _ in live:
        wrong += (tensor != value).sum()
    print(f"churn: {wrong.item()} bytes wrong")


def compiled():
    @torch.compile
    def work(x, y):
        return (torch.sin(x) * y + x.square()).sum(dim=1)

    for rows in (1000, 3000):
        x = torch.arange(rows * 256, dtype=torch.float32, device="cuda").view(rows, 256) / 1e4
        print(f"compiled, {rows} rows: {digest(work(x, x + 1))}")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--compile", action="store_true")
    args = options.parse_args()
    if not torch.cuda.is_available():
        print("SKIP torch_vmm: no GPU")
        return 77
    for part in (compiled,) if args.compile else (free_memory, attributes, pinned_copies, workspaces,
                                                  churn, free_memory):
        part()
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
