"""How many images a run of `deepbilevel train` gets through, beside a plain PyTorch loop of the same network.

    python -m benchmarks.throughput      # some minutes of a core; on a quiet machine

CifarNet, steps of 64 images (8 x 8 for bilevel), one thread, the recipe of the paper's noise curve. Everything but
evaluation counts: sampler, augmentation, rule, optimizer, checkpoints. The plain loop has its images ready in memory
and does nothing else, so it is the limit. All take turns; figures are medians over rounds, in images per second of
processor time.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.cost.training import measure_training
from benchmarks.record_tables import RESULTS, markdown_table
from deepbilevel_lab.networks import build_network
from deepbilevel_lab.records import to_json
from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.training.record import environment
from deepbilevel_lab.training.run import Listener

_FILE = RESULTS / "throughput.json"
_IMAGES, _EPOCHS, _BATCH = 3200, 2, 64
_PLAIN = "plain PyTorch loop"


def plain_loop() -> float:
    """Return images per second of a loop that trains and does nothing else, after an epoch to warm up."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = torch.randn(_IMAGES, 3, 28, 28), torch.randint(10, (_IMAGES,))
    model = build_network("cifarnet", num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = 0.0
    for epoch in range(_EPOCHS):
        if epoch == 1:
            begin = time.process_time()
        for batch in torch.randperm(_IMAGES).split(_BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return _IMAGES * (_EPOCHS - 1) / (time.process_time() - begin)


def trained(**settings: Any) -> float:
    """Return images per second of `deepbilevel train`."""
    both = {"group.batch_size": _BATCH // 8, **settings}
    return measure_training(_IMAGES, _EPOCHS, Listener(), both).images_per_second


CONTENDERS: Mapping[str, Callable[[], float]] = {
    _PLAIN: plain_loop,
    "`train`, SGD": partial(trained, method={"kind": "sgd"}),
    "`train`, bilevel": trained,
    "`train`, bilevel, joined passes": partial(trained, passes="joined"),
    "`train`, cross-validated, joined passes": partial(trained, method={"kind": "cross-validated"}, passes="joined"),
}


def table() -> str:
    """Return the committed record as Markdown: images per second, and relative to the plain loop."""
    rounds: list[dict[str, float]] = json.loads(_FILE.read_text())["rounds"]
    rows: list[list[str]] = []
    for name in CONTENDERS:
        ratio = median(each[name] / each[_PLAIN] for each in rounds)
        rows.append([name, f"{median(each[name] for each in rounds):.0f}", f"{ratio:.2f}"])
    return markdown_table(["", "images per second", "relative to the plain loop"], rows)


def main() -> None:
    """Measure, and keep the record after every round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often all take turns")
    parser.add_argument("--out", type=Path, default=_FILE, help="the record")
    given = parser.parse_args()
    rounds: list[dict[str, float]] = []
    for _ in range(given.rounds):
        rounds.append({name: measure() for name, measure in CONTENDERS.items()})
        print(json.dumps(rounds[-1]), flush=True)
        write_text(given.out, json.dumps({"environment": to_json(environment()), "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
