"""A network on handwritten digits in plain PyTorch; a progress bar shows the loss."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
y = torch.tensor(digits.target)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
loss_of = nn.CrossEntropyLoss()

bar = tqdm(range(150))
for _ in bar:
    total = 0.0
    for batch in torch.randperm(len(x)).split(64):
        loss = loss_of(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    bar.set_postfix(loss=total / len(x))
