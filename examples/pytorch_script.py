"""A PyTorch training loop that tells slaq its loss; the two lines with `slaq.` do nothing when run on its own.

Its one argument is the number of passes over the data.
"""

import sys

import slaq

try:
    import torch
except ImportError:
    sys.exit("this example needs PyTorch, which is not installed; install it with: pip install 'slaq[torch]'")

from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def rings(count: int) -> TensorDataset:
    """Points of two rings around the origin, which no straight line separates."""
    label = torch.randint(0, 2, (count,))
    radius = 1.0 + label + 0.2 * torch.randn(count)
    angle = 2.0 * torch.pi * torch.rand(count)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), label)


def evaluate(model: nn.Module, data: TensorDataset) -> tuple[float, float]:
    """Return loss and accuracy on data that the model was not trained on."""
    model.eval()
    points, label = data.tensors
    with torch.no_grad():
        output = model(points)
    accuracy = (output.argmax(dim=1) == label).float().mean()
    return float(nn.functional.cross_entropy(output, label)), float(accuracy)


def main(passes: int) -> None:
    torch.manual_seed(0)
    batches = DataLoader(rings(4096), batch_size=128, shuffle=True)
    held_out = rings(1024)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.3)

    loss, accuracy = evaluate(model, held_out)
    slaq.report(loss, accuracy=accuracy)
    for _ in range(passes):
        rate = optimizer.param_groups[0]["lr"]
        model.train()
        for points, label in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(points), label).backward()
            optimizer.step()
        schedule.step()
        loss, accuracy = evaluate(model, held_out)
        slaq.report(loss, accuracy=accuracy)
        if optimizer.param_groups[0]["lr"] != rate:
            slaq.announce(learning_rate=optimizer.param_groups[0]["lr"])
    print(f"loss {loss:.4f}, accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
