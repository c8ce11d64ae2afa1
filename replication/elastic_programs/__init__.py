"""Programs that the experiments on elastic training run as processes of their own; they need PyTorch."""
