"""Records as sweeps and runs leave them, with curves that look like real ones. Seeded: the same files every time."""

import hashlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from deepbilevel_lab.report import make_report

HOSTILE = '</script><img src=x onerror="document.title=`owned`">\'&"'

ABLATIONS = {  # row: (train, test) as if printed, on clean labels and with half of them wrong
    "SGD": ((99.9, 72.1), (99.1, 40.2)),
    "bilevel, no L1 constraint": ((84.6, 71.5), (52.3, 45.9)),
    "bilevel, weights per layer": ((90.1, 73.2), (81.60, 49.62)),
    "bilevel": ((97.0, 75.7), (60.8, 50.3)),
}
COMPARED = (
    *(
        "SGD",
        "uniform weights",
        "random weights",
        "|w|",
        "clipped",
        "label smoothing",
        "bootstrap, soft",
        "bootstrap, hard",
    ),
    *("mixup", "dropout 0.7", "generalised cross-entropy", "bilevel", "bilevel with mixup", "cross-validated"),
)


def write_everything(folder: Path) -> Path:
    """Write a table, a figure and a comparison with their runs, and a benchmark; return the folder."""
    write_ablations(folder)
    write_noise_curve(folder)
    write_comparison(folder)
    write_costs(folder)
    return folder


def make_page_only(folder: Path) -> Path:
    """Make a report without pictures, which take seconds and which no browser looks at; return its page."""
    with pytest.MonkeyPatch.context() as without:
        without.setitem(sys.modules, "vl_convert", None)
        return make_report(folder).page


def write_whole_table(folder: Path) -> None:
    """Write a table as wide as the paper's first: six rows, two networks with and without noise, two seeds."""
    rows = ("SGD", "Baseline", "a) no L1", "b) weights per layer", "c) sampling", "d) dropout")
    cells = []
    for column in ("CifarNet, clean", "CifarNet, 50 % noise", "Inception, clean", "Inception, 50 % noise"):
        clean = column.endswith("clean")
        for place, row in enumerate(rows):
            train, test = 99.99 - 9 * place, 75.68 - 7 * place
            printed = {"train": train, "test": test, "gap": 24.31 if clean else None, "note": None}
            if column == "Inception, 50 % noise" and place == 3:
                printed["note"] = "doubtful: repeats the numbers of another network"
            absent = column == "Inception, clean" or (column.startswith("Inception") and place > 1)
            runs = [
                not_done(seed, "missing") if absent else run(folder, f"{column} {row}", seed, train, test, 6, row)
                for seed in range(2)
            ]
            if clean and not absent:
                runs = [{**each, "figures": {**each["figures"], "train_clean": None}} for each in runs]
            cells.append({"row": row, "column": column, "x": None, "published": printed, "runs": runs})
    write_sweep(folder, "whole", title="Ablations on CIFAR-10", cells=cells)


def write_mu_figure(folder: Path, rows: Sequence[str] = ("Bilevel",)) -> None:
    """Write a figure as the paper's ablations: two networks with clean and noisy labels against a parameter."""
    cells = []
    for column in ("CifarNet, clean", "CifarNet, 50 % noise", "Inception, clean", "Inception, 50 % noise"):
        test = 70.0 if column.endswith("clean") else 45.0
        for row in rows:
            for x in (0.001, 0.01, 0.1):
                runs = [run(folder, f"mu {column} {row} {x}", 0, test + 20, test, 4, row)]
                cells.append({"row": row, "column": column, "x": x, "published": None, "runs": runs})
    write_sweep(folder, "mu", title="The parameter mu", axis={"name": "mu", "unit": ""}, cells=cells)


def write_ablations(folder: Path) -> None:
    """Write a table with a doubtful number, a missing run and a failed one."""
    cells = []
    for place, column in enumerate(("CifarNet, clean", "CifarNet, 50 % noise")):
        for row, printed in ABLATIONS.items():
            train, test = printed[place]
            doubtful = place == 1 and "per layer" in row
            cell = {
                "row": row,
                "column": column,
                "x": None,
                "published": {
                    "train": train,
                    "test": test,
                    "gap": round(train - test, 2) if place == 0 else None,
                    "note": "doubtful: repeats the numbers of another network" if doubtful else None,
                },
                "runs": [ablation(folder, row, place, seed, train, test) for seed in range(3)],
            }
            cells.append(cell)
    write_sweep(
        folder,
        "table1",
        title="Ablations on CIFAR-10",
        about="Table 1 of the paper.",
        scale="compact",
        reduced="5,000 training images instead of 50,000; 12 epochs instead of 200.",
        cells=cells,
    )


def ablation(folder: Path, row: str, place: int, seed: int, train: float, test: float) -> dict:
    """Write a run of the table; SGD fails on noisy labels, and one other run was never made."""
    if row == "SGD" and place == 1:
        return not_done(seed, "failed", "the loss of mini-batch 3 is nan")
    if row == "bilevel, no L1 constraint" and place == 0 and seed == 2:
        return not_done(seed, "missing")
    return run(folder, f"table1 {row} {place}", seed, train - 3, test - 6, 12, row)


def not_done(seed: int, status: str, error: str | None = None) -> dict:
    """Return what a sweep tells of a run without result."""
    return {"seed": seed, "id": None, "status": status, "error": error, "figures": None}


def write_noise_curve(folder: Path) -> None:
    """Write a figure with an axis, published points for one line, and a point that is missing."""
    cells = []
    for noise in (0, 20, 40, 50, 60, 80):
        for row, gain in (("SGD", 0.0), ("bilevel", 6.0)):
            train, test = 99 - 0.2 * noise - 3 * gain, 62 - 0.45 * noise + gain * noise / 50
            printed = (
                {"train": None, "test": round(test + 12, 2), "gap": None, "note": None} if row == "bilevel" else None
            )
            absent = noise == 80 and row == "SGD"
            name = f"noise {row} {noise}"
            runs = [not_done(s, "missing") if absent else run(folder, name, s, train, test, 10, row) for s in range(2)]
            cells.append({"row": row, "column": "CifarNet", "x": noise, "published": printed, "runs": runs})
    write_sweep(
        folder, "noise", title="Label noise on CIFAR-10", axis={"name": "label noise", "unit": "%"}, cells=cells
    )


def write_comparison(folder: Path) -> None:
    """Write more methods than there are colours, without published numbers."""
    cells = []
    for place, row in enumerate(COMPARED):
        runs = [run(folder, f"compare {row}", s, 95 - 4.5 * place, 60 + 2.4 * place, 8, row) for s in range(2)]
        cells.append({"row": row, "column": "digits, 50 % noise", "x": None, "published": None, "runs": runs})
    write_sweep(folder, "compare", kind="comparison", title="Methods side by side", cells=cells)


def write_costs(folder: Path, **changes) -> Path:
    """Write a benchmark of two settings, in which a peer failed, and growth along two axes."""

    def spread(value: float) -> dict:
        return {"median": value, "low": 0.95 * value, "high": 1.1 * value}

    rows = [
        {"name": name, "kind": "ours", "failed": None, "rounds": 9, "seconds": spread(seconds)}
        | {"to_sgd": spread(seconds), "to_accumulation": spread(seconds / 1.25)}
        for name, seconds in (("SGD, one batch", 1.0), ("bilevel", 1.375))
    ]
    failed = {"name": "a peer", "kind": "peer", "failed": "ImportError: not installed", "rounds": 0}
    rows.append({**failed, "seconds": None, "to_sgd": None, "to_accumulation": None})
    growth = [
        {
            "axis": axis,
            "points": [
                {"x": x, "setting": f"cifarnet {x}x16", "limit": 100.0 + x}
                | {"microseconds": {"SGD, one batch": spread(300.0), "bilevel": spread(310.0 + x)}}
                for x in places
            ],
        }
        for axis, places in (("mini-batches in a group", (2, 8, 32)), ("parameters (millions)", (0.1, 1.4)))
    ]
    record = {
        "format": 1,
        "machine": {"processor": "A Processor", "threads": 1, "torch": "2.13.0", "python": "3.11.2"},
        "updates": {"cifarnet 8x8": rows, "cifarnet 8x16": rows},
        "memory": {"cifarnet 2x16": {"SGD, one batch": 3.5}, "cifarnet 8x16": {"SGD, one batch": 4.5, "bilevel": 5.25}},
        "growth": growth,
    }
    path = folder / "bench.json"
    path.write_text(json.dumps(record | changes))
    return path


def write_sweep(folder: Path, name: str, /, **changes) -> Path:
    """Write a sweep record; everything but the cells has a default."""
    folder.mkdir(parents=True, exist_ok=True)
    sweep = {
        "format": 1,
        "kind": "experiment",
        "id": hashlib.sha256(name.encode()).hexdigest()[:10],
        "name": name,
        "title": name,
        "about": f"deepbilevel reproduce {name}",
        "scale": None,
        "reduced": None,
        "axis": None,
        "updated": "2026-11-16T04:13:31+00:00",
        "cells": [],
        **changes,
    }
    path = folder / f"sweep-{name}.json"
    path.write_text(json.dumps(sweep, indent=1))
    return path


def run(folder: Path, name: str, seed: int, train: float, test: float, epochs: int, method: str) -> dict:
    """Write a run that ends near ``train`` and ``test``, and return what a sweep tells of it."""
    record = write_run(folder, name, seed, train, test, epochs, method)
    final, best = record["final"], record["best"]
    figures = {key: final[key] for key in ("test", "train", "train_clean", "gap")} | {
        "best": best["test"],
        "seconds": 61.5,
    }
    return {"seed": seed, "id": record["id"], "status": "done", "error": None, "figures": figures}


def write_run(folder: Path, name: str, seed: int, train: float, test: float, epochs: int, method: str = "SGD") -> dict:
    """Write the record of a finished run, evaluated every second epoch, and return it."""
    random = Random(f"{name} {seed}")
    history = [_epoch(e, epochs, train, test, method, random) for e in range(1, epochs + 1)]
    evaluated = [row for row in history if "test" in row]
    identity = hashlib.sha256(f"{name} {seed}".encode()).hexdigest()[:10]
    record = {
        "format": 1,
        "id": identity,
        "name": name,
        "status": "done",
        "error": None,
        "updated": "2026-11-16T04:13:31+00:00",
        "spec": {"data": {"name": name}, "epochs": epochs, "seed": seed},
        "metric": "accuracy",
        "final": evaluated[-1],
        "best": max(evaluated, key=lambda row: row["test"]),
        "history": history,
        "seconds": {"wall": 61.5},
    }
    place = folder / "runs" / identity
    place.mkdir(parents=True, exist_ok=True)
    (place / "record.json").write_text(json.dumps(record))
    return record


def _epoch(epoch: int, epochs: int, train: float, test: float, method: str, random: Random) -> dict:
    progress = 1 - math.exp(-4 * epoch / epochs)
    row = {"epoch": epoch, "lr": 0.03, "loss": 2.3 * (1.2 - progress) + random.gauss(0, 0.02), "negative_share": 0.0}
    if method.startswith("bilevel"):
        middle, width = 0.14 * (1 - 0.5 * progress), 0.05 + 0.1 * progress
        steps = zip((5, 25, 50, 75, 95), (-1.6, -0.7, 0.0, 0.7, 1.6), strict=True)
        row |= {f"weight_p{q}": middle + width * z + random.gauss(0, 0.004) for q, z in steps}
        row["negative_share"] = 0.05 + 0.3 * progress
    if method == "cross-validated":
        row["shared"] = 0.4 - 0.2 * progress
    if epoch % 2 == 0 or epoch == epochs:
        row["train"] = min(100.0, train * progress + random.gauss(0, 0.6))
        row["train_clean"] = min(100.0, (train * 0.3 + test * 0.7) * progress + random.gauss(0, 0.6))
        peak = 0.0 if method.startswith(("bilevel", "cross")) else 12 * math.sin(math.pi * min(1.0, epoch / epochs))
        row["test"] = test * progress + peak + random.gauss(0, 0.9)
        row["gap"] = row["train"] - row["test"]
    return row
