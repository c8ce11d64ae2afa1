"""A network whose learning rate drops twice: its loss falls, stalls, and falls again."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(6_000, 32)
y = torch.sin(x[:, :8]).sum(1, keepdim=True) + 0.5 * torch.randn(6_000, 1)
model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[35, 60], gamma=0.1)

for epoch in range(80):
    total = 0.0
    for batch in torch.randperm(len(x)).split(128):
        loss = nn.functional.mse_loss(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    schedule.step()
    print(f"[{epoch + 1}/80] loss: {total / len(x):.5f}, learning rate: {schedule.get_last_lr()[0]:.0e}")
