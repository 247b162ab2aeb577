"""PyTorch with torch.cuda.graph, unchanged: what is captured, replayed and computed is printed, and
so is how a capture fails. With PYTORCH_NO_CUDA_MEMORY_CACHING=1 an allocation inside a capture is a
cudaMalloc that CUDA refuses; a capture that allocates nothing works.
"""

import hashlib
import sys

import torch


def digest(tensor):
    return hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()[:16]


def first_line(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def warm_up(work):
    """As PyTorch's documentation asks: a few calls on a side stream before a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)


def without_allocation():
    """Captures arithmetic in place, and allocates and frees between the replays."""
    x = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    y = torch.empty_like(x)

    def work():
        torch.mul(x, 1.0009765625, out=y)
        y.add_(1.0)
        x.copy_(y)

    warm_up(work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    seen = []
    for step in range(8):
        graph.replay()
        # Buffers of the same size as the graph's come and go while it runs.
        noise = torch.full_like(x, float(step))
        seen.append(float((noise + y)[::65536].sum().item()))
        del noise
    print("in place:", digest(x), digest(y), [value.hex() for value in seen])


def with_allocation():
    """Captures a model's forward and backward pass, which allocates, and replays it."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 16)).cuda()
    inputs = torch.randn(64, 256, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for number in range(8):
        inputs.copy_(torch.randn(64, 256, generator=torch.Generator().manual_seed(number)))
        graph.replay()
        beside = torch.ones(64, 256, device="cuda") * number  # not the graph's
        losses.append(loss.item() + 0 * beside.sum().item())
        optimizer.step()
    print("model:", [value.hex() for value in losses],
          [digest(parameter) for parameter in model.parameters()])


def main():
    if not torch.cuda.is_available():
        print("SKIP torch_graph: no GPU")
        return 77
    for part in (without_allocation, with_allocation):
        try:
            part()
        except RuntimeError as error:
            print(f"{part.__name__}: {first_line(error)}")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
