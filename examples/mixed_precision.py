"""Autocast and loss scaling: give the scaler to Bilevel; what follows ``fill`` is torch's own recipe."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import Bilevel, MatchedGroups


def main(steps: int = 40) -> float:
    """Take some steps in mixed precision and return the last group's mean loss."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    labels = torch.arange(512) % 4
    inputs = torch.randn(512, 32) + 3 * nn.functional.one_hot(labels, 32)
    groups = MatchedGroups(labels, num_batches=4, batch_size=16, seed=0)
    loader = DataLoader(TensorDataset(inputs, labels), batch_sampler=groups)

    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(device)
    bilevel = Bilevel(model, num_batches=4, scaler=scaler)

    losses: list[float] = []
    while len(losses) < steps:
        for x, y in loader:
            with torch.autocast(device, torch.float16):
                loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            bilevel.backward(loss)  # the loss as it is: Bilevel scales it, and weighs unscaled gradients
            if bilevel.full:
                report = bilevel.fill()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                losses.append(report.losses.mean().item())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} in {len(losses)} steps, scale {scaler.get_scale():.0f}")
    return losses[-1]


if __name__ == "__main__":
    main()
