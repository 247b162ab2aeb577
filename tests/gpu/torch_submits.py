"""PyTorch in the ways that reach the driver differently: cuBLAS, cuDNN, its own kernels, Triton,
copies of every kind, fills, and a graph (not with --no-graph: natively a graph cannot be captured
while the cache is off). Prints sums that must be right.
"""

import argparse
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402


def triton_sum(x, y):
    """x + y by a Triton kernel, or None without Triton."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return None
    import triton_add
    return triton_add.add(x, y)


def graph_sum(x):
    """x doubled three times by a captured graph."""
    total = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total.mul_(1.0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total.mul_(2.0)
    for _ in range(3):
        graph.replay()
    return total


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--no-graph", action="store_true")
    args = options.parse_args()
    if not torch.cuda.is_available():
        print("SKIP torch_submits: no GPU")
        return 77
    torch.manual_seed(7)
    device = torch.device("cuda")
    right = {}
    a = torch.ones(512, 512, device=device)
    right["cuBLAS, float"] = (a @ a).double().sum().item() == 512.0 ** 3
    half = a.bfloat16()
    right["cuBLAS, bfloat16"] = (half @ half).double().sum().item() == 512.0 ** 3
    batch = torch.ones(4, 64, 64, device=device).half()
    right["cuBLAS, batched"] = torch.bmm(batch, batch).double().sum().item() == 4 * 64.0 ** 3
    right["cuBLAS, linear with bias"] = torch.nn.functional.linear(
        a, a, a[0]).double().sum().item() == 512 * 512 * 513.0
    image = torch.ones(8, 16, 32, 32, device=device, requires_grad=True)
    filters = torch.ones(32, 16, 3, 3, device=device)
    convolved = torch.nn.functional.conv2d(image, filters)
    convolved.sum().backward()
    right["cuDNN"] = convolved.double().sum().item() == 8 * 32 * 30 * 30 * 144.0
    right["cuDNN, backward"] = image.grad.double().sum().item() == 8 * 16 * 9 * 900.0 * 32
    added = triton_sum(a, a)
    right["Triton"] = added is None or added.sum().item() == 2 * 512.0 ** 2
    host = torch.arange(100000, dtype=torch.float32).pin_memory()
    there = host.to(device, non_blocking=True)
    back = torch.empty_like(host).pin_memory()
    back.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    right["copies"] = bool((back == host).all()) and bool((there.cpu() == host).all())
    right["copies, strided"] = bool((there.view(100, 1000)[:, ::2].cpu()
                                     == host.view(100, 1000)[:, ::2]).all())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        zeros = torch.zeros(100000, device=device)
        zeros.add_(there)
    torch.cuda.current_stream().wait_stream(side)
    right["another stream"] = bool((zeros == there).all().item())
    right["sort, scan, index"] = (torch.sort(-there)[0][0].item() == -99999.0
                                  and torch.cumsum(a[0], 0)[-1].item() == 512.0
                                  and there[there > 99990].numel() == 9)
    if not args.no_graph:
        right["graph"] = graph_sum(a).sum().item() == 8 * 512.0 ** 2
    for what, good in right.items():
        print(f"{what}: {'right' if good else 'WRONG'}")
    return 0 if all(right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
