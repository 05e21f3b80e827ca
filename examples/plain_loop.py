"""An ordinary training loop with wrong labels, and the four lines that make it bilevel (marked)."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import Bilevel, MatchedGroups  # <- 1


def main(epochs: int = 20) -> float:
    """Train a small network on two moons of which a third of the labels are wrong; return its test accuracy."""
    torch.manual_seed(0)
    train_x, train_y = two_moons(4096)
    test_x, test_y = two_moons(1024)
    wrong = torch.rand(len(train_y)) < 1 / 3
    labels = torch.where(wrong, 1 - train_y, train_y)

    model = nn.Sequential(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=epochs)
    groups = MatchedGroups(labels, num_batches=8, batch_size=16, seed=0)  # <- 2
    loader = DataLoader(TensorDataset(train_x, labels), batch_sampler=groups)
    bilevel = Bilevel(model, num_batches=8)  # <- 3

    for epoch in range(epochs):
        for x, y in loader:
            bilevel.backward(criterion(model(x), y))  # <- 4: was loss.backward()
            if bilevel.full:
                report = bilevel.fill()
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        with torch.no_grad():
            accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
        agreement = report.agreement.mean().item()
        print(f"epoch {epoch + 1:2}: test accuracy {accuracy:.1%}, last agreement with validation {agreement:+.2f}")
    return accuracy


def two_moons(num_points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two interleaved half circles with some blur, and which one each point is on."""
    labels = torch.arange(num_points) % 2
    angle = torch.pi * torch.rand(num_points)
    upper = torch.stack([angle.cos(), angle.sin()], dim=1)
    points = torch.where(labels[:, None] == 0, upper, torch.tensor([1.0, 0.5]) - upper)
    return points + 0.1 * torch.randn_like(points), labels


if __name__ == "__main__":
    main()
