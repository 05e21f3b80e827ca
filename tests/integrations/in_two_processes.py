"""Run under torchrun: trains by a trainer, then by a loop of one's own in the same processes; saves both.

Arguments: the trainer, what processes share, and a folder.
"""

import os
import sys
from pathlib import Path

import torch

# Before there is a process group: loaded later, it keeps the group's threads alive, and a process that ends beside
# them may abort.
import torch.distributed.nn
from torch import distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.integrations.tasks import plain_loop


def by_lightning(spread, folder):
    from tests.integrations import test_lightning as own

    callback = own.BilevelCallback(own.K, spread=spread)
    options = {"devices": 2, "strategy": "ddp", "use_distributed_sampler": False}
    return own.train(folder, callback=callback, **options)[0]


def by_lightning_dealt_twice(spread, folder):
    from tests.integrations import test_lightning as own

    try:
        own.train(folder, devices=2, strategy="ddp")
    except ValueError as error:
        return str(error)


def by_transformers(spread, folder):
    from tests.integrations import test_transformers as own

    return own.train(folder)[0]


def by_accelerate(spread, folder):
    from tests.integrations import test_accelerate as own

    return own.train(spread)


def by_accelerate_dealt_twice(spread, folder):
    from tests.integrations import test_accelerate as own

    try:
        own.train(spread, prepare_loader=True)
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    trainer, spread, folder = sys.argv[1:]
    torch.set_num_threads(1)
    ours = globals()[f"by_{trainer}"](spread, folder)
    torch.save((ours, plain_loop(spread=spread)), Path(folder) / f"rank{dist.get_rank()}")
    dist.destroy_process_group()
    # What trainers still hold of the group has threads, and a process that ends the usual way beside them may abort.
    os._exit(0)
