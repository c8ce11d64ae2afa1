"""An autoencoder in PyTorch whose data is prepared by the worker processes of a DataLoader."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class NoisyDigits(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Digits with noise, and without."""

    def __init__(self) -> None:
        self.clean = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.clean)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.clean[index] + 0.3 * torch.randn(64), self.clean[index]


def main() -> None:
    """Train it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 256),
        nn.ReLU(),
        nn.Linear(256, 24),
        nn.ReLU(),
        nn.Linear(24, 256),
        nn.ReLU(),
        nn.Linear(256, 64),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(NoisyDigits(), batch_size=64, shuffle=True, num_workers=1, persistent_workers=True)
    for epoch in range(60):
        total = 0.0
        for noisy, clean in loader:
            loss = nn.functional.mse_loss(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"Epoch {epoch}: train_loss={total / len(loader):.5f} lr={1e-3}")


if __name__ == "__main__":
    main()
