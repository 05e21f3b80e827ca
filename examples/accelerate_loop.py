"""A loop with Accelerate: accelerate launch --num-processes 2 examples/accelerate_loop.py

It needs `pip install '.[accelerate]'`. The processes share every group; without `launch` it runs in one.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import TensorDataset

from deepbilevel import CrossValidated
from deepbilevel.distributed import share
from deepbilevel.rules.average import Sgd
from deepbilevel.step import GroupStep


def main(epochs: int = 40, mixed_precision: str = "no") -> dict[str, float]:
    """Train on 30 % wrong labels by SGD and by the cross-validated gradient; return both test accuracies."""
    accelerator = Accelerator(mixed_precision=mixed_precision)
    set_seed(0)  # the same network and the same data in all processes
    x, y = clouds(1024)
    labels = torch.where(torch.rand(len(y)) < 0.4, torch.randint(4, y.shape), y)
    test_x, test_y = clouds(2048)
    accuracies: dict[str, float] = {}
    for name in ("sgd", "cross-validated"):
        set_seed(0)
        model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model, optimizer = accelerator.prepare(model, optimizer)
        if name == "sgd":
            step = GroupStep(model, Sgd(), num_batches=8, scaler=accelerator.scaler)
        else:
            step = CrossValidated(model, num_batches=8, scaler=accelerator.scaler)
        step = share(step, "batches")
        # Not through `prepare`, which would deal the mini-batches out once more.
        loader = step.loader(TensorDataset(x, labels), labels, batch_size=16, seed=0)
        total = epochs * loader.groups.num_groups
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer.optimizer, total)
        for _ in range(epochs):
            for inputs, targets in loader:
                inputs, targets = inputs.to(accelerator.device), targets.to(accelerator.device)
                with accelerator.autocast():
                    loss = nn.functional.cross_entropy(model(inputs), targets)
                step.backward(loss)  # instead of accelerator.backward(loss), undivided
                if step.full:
                    step.fill()
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
        with torch.no_grad():
            predicted = model(test_x.to(accelerator.device)).argmax(1).cpu()
        accuracies[name] = (predicted == test_y).float().mean().item()
        accelerator.print(f"{name}: test accuracy {accuracies[name]:.1%}")
    accelerator.end_training()
    return accuracies


def clouds(num_points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points of four clouds in 32 dimensions, and which one each is from."""
    labels = torch.arange(num_points) % 4
    return torch.randn(num_points, 32) + 2 * nn.functional.one_hot(labels, 32), labels


if __name__ == "__main__":
    main()
