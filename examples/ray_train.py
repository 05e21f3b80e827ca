"""Ray Train on two workers: a third of the labels is wrong; the workers share the mini-batches of every group.

Install with ``pip install 'ray[train]'``. The loop is that of one process but for ``share``: Ray has made the process
group before it begins, and no ``prepare_data_loader`` may deal the mini-batches out once more.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from deepbilevel import CrossValidated
from deepbilevel.distributed import share


def make_data(num_samples: int = 2048) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return inputs of four classes, their labels, and the labels as given."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num_samples) % 4
    inputs = torch.randn(num_samples, 16, generator=generator) + 3 * nn.functional.one_hot(labels, 16)
    wrong = torch.rand(num_samples, generator=generator) < 1 / 3
    return inputs, labels, torch.where(wrong, (labels + 1) % 4, labels)


def train_on_a_worker(settings: dict[str, float]) -> None:
    """Train; every worker runs this."""
    import ray.train

    torch.manual_seed(0)
    inputs, labels, given = make_data()
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"], momentum=0.9)
    step = share(CrossValidated(model, num_batches=8), "batches")
    loader = step.loader(TensorDataset(inputs, given), given, batch_size=16, seed=0)
    for _ in range(int(settings["epochs"])):
        for x, y in loader:
            step.backward(nn.functional.cross_entropy(model(x), y))
            if step.full:
                step.fill()
                optimizer.step()
                optimizer.zero_grad()
    right = (model(inputs).argmax(dim=1) == labels).double().mean().item()
    with tempfile.TemporaryDirectory() as folder:  # Ray keeps figures beside a checkpoint, and not without one
        torch.save(model.state_dict(), Path(folder) / "model.pt")
        ray.train.report({"accuracy": right}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def main(epochs: int = 5) -> float:
    """Train on two workers and return the accuracy on the right labels."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train_on_a_worker,
            train_loop_config={"lr": 0.05, "epochs": epochs},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder, name="example"),
        )
        return trainer.fit().metrics["accuracy"]


if __name__ == "__main__":
    print(f"{main():.1%} of the right labels")
