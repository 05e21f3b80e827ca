"""Lightning on labels of which 30 % are wrong: the same module with and without the callback.

It needs `pip install '.[lightning]'`. On several processes, set Trainer(use_distributed_sampler=False).
"""

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel.integrations.lightning import BilevelCallback  # <- 1
from deepbilevel.rules.cross_validated import CrossValidatedRule


class Module(LightningModule):
    """An ordinary module: nothing in it knows of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.network(x), y)

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("accuracy", (self.network(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main(epochs: int = 40) -> dict[str, float]:
    """Train by SGD and by the cross-validated gradient; return both test accuracies."""
    seed_everything(0, verbose=False)
    x, y = clouds(1024)
    labels = torch.where(torch.rand(len(y)) < 0.4, torch.randint(4, y.shape), y)
    data, test_data = TensorDataset(x, labels), TensorDataset(*clouds(2048))
    callback = BilevelCallback(num_batches=8, rule=CrossValidatedRule())  # <- 2
    loaders = {
        "sgd": DataLoader(data, batch_size=128, shuffle=True, drop_last=True),
        "cross-validated": callback.loader(data, labels, batch_size=16, seed=0),  # <- 3
    }
    accuracies: dict[str, float] = {}
    for name, loader in loaders.items():
        seed_everything(0, verbose=False)
        module = Module()
        trainer = Trainer(
            max_epochs=epochs,
            callbacks=[callback] if name != "sgd" else [],  # <- 4
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, loader)
        (result,) = trainer.test(module, DataLoader(test_data, batch_size=512), verbose=False)
        accuracies[name] = result["accuracy"]
        print(f"{name}: test accuracy {result['accuracy']:.1%}")
    return accuracies


def clouds(num_points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points of four clouds in 32 dimensions, and which one each is from."""
    labels = torch.arange(num_points) % 4
    return torch.randn(num_points, 32) + 2 * nn.functional.one_hot(labels, 32), labels


if __name__ == "__main__":
    main()
