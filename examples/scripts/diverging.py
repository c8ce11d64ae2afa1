"""A network with a learning rate that is far too high: after a while its loss is no number any more."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(2_000, 64)
y = (x[:, :4] ** 2).sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
rate = 1e-3
for step in range(1, 2_001):
    loss = nn.functional.mse_loss(model(x), y)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for weights in model.parameters():
            weights.sub_(rate * weights.grad)
    # The schedule has its sign wrong.
    rate *= 1.01
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.5f}")
