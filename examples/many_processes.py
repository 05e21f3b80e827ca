"""The plain loop on several processes: torchrun --nproc-per-node 2 examples/many_processes.py

Each process computes its share of every group, and all take the same step. Without torchrun it runs in one.
"""

import os

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import Bilevel, MatchedGroups
from deepbilevel.distributed import share


def main(epochs: int = 10) -> tuple[float, torch.Tensor]:
    """Train on wrong labels; return the test accuracy and the weights, which are the same in all processes."""
    torch.manual_seed(0)  # the same network and the same data in all processes
    train_x, train_y = rings(2048)
    test_x, test_y = rings(512)
    labels = torch.where(torch.rand(len(train_y)) < 1 / 3, 1 - train_y, train_y)
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(2, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=epochs)

    # After the optimizer: making one loads modules of torch that keep a process group they find, and with it threads
    # that destroy_process_group then cannot end; a process that leaves beside them may abort.
    if "WORLD_SIZE" in os.environ:  # set by torchrun
        if torch.cuda.is_available():
            torch.cuda.set_device(device)
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    # Both know this process's share of the 8 mini-batches: the one yields it, the other expects it.
    groups = share(MatchedGroups(labels, num_batches=8, batch_size=16, seed=0), "batches")
    bilevel = share(Bilevel(model, num_batches=8), "batches")
    for _ in range(epochs):
        for x, y in DataLoader(TensorDataset(train_x, labels), batch_sampler=groups):
            bilevel.backward(nn.functional.cross_entropy(model(x.to(device)), y.to(device)))
            if bilevel.full:
                bilevel.fill()
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()

    model.eval()
    with torch.no_grad():
        accuracy = (model(test_x.to(device)).argmax(1).cpu() == test_y).float().mean().item()
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        print(f"test accuracy {accuracy:.1%}")
    if distributed.is_initialized():
        distributed.destroy_process_group()
    return accuracy, nn.utils.parameters_to_vector(model.parameters()).detach().cpu()


def rings(num_points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points of two rings with some blur, and which ring each is on."""
    labels = torch.arange(num_points) % 2
    angle = 2 * torch.pi * torch.rand(num_points)
    points = torch.stack([angle.cos(), angle.sin()], dim=1) * (1.0 + labels[:, None])
    return points + 0.1 * torch.randn_like(points), labels


if __name__ == "__main__":
    main()
