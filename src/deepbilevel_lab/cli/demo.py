"""``deepbilevel demo``: see the method work on real digits within a minute or two."""

import json
import os
from dataclasses import asdict
from enum import Enum
from math import ceil
from pathlib import Path
from typing import Annotated

import typer

from deepbilevel_lab.cli.messages import errors_as_messages


class DrawChoice(str, Enum):
    """How the labels of a group are drawn."""

    shuffled = "shuffled"
    stratified = "stratified"


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to train each method with.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 50,
    noise_rate: Annotated[float, typer.Option(min=0, max=1, help="Share of training labels to make wrong.")] = 0.5,
    lr: Annotated[float, typer.Option(min=1e-6, help="Learning rate of all methods, constant.")] = 0.1,
    draw: Annotated[DrawChoice, typer.Option(help="How the labels of a group are drawn.")] = DrawChoice.shuffled,
    jobs: Annotated[int, typer.Option(min=0, help="Runs side by side; 0: one per processor core.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the numbers.")] = Path("demo"),
) -> None:
    """Train on digits of which half the labels are wrong: plain SGD, a control, and bilevel, side by side.

    Example: deepbilevel demo --seeds 1 --epochs 10
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    from deepbilevel_lab.demo.picture import draw_curves
    from deepbilevel_lab.demo.summary import NAMES, conclude, summarize
    from deepbilevel_lab.demo.training import METHODS, Method, Setting
    from deepbilevel_lab.demo.trials import run_trials

    console = Console()
    setting = Setting(epochs=epochs, noise_rate=noise_rate, lr=lr, draw=draw.value)
    with errors_as_messages():  # before training: a folder that cannot be made should cost no minute
        out.mkdir(parents=True, exist_ok=True)
    console.print(
        f"1,347 handwritten digits, {noise_rate:.0%} of their labels made wrong, a small CNN, {seeds} seed(s). "
        f"Same initial weights, steps and learning rate for all methods."
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"))
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        bars = {method: progress.add_task(NAMES[method], total=seeds * epochs) for method in METHODS}

        def on_epoch(method: Method) -> None:
            progress.advance(bars[method])
            bar = progress.tasks[bars[method]]
            if not console.is_terminal and (bar.completed == 1 or bar.completed % ceil(seeds * epochs / 5) == 0):
                console.print(f"{bar.description}: {bar.completed:.0f} of {bar.total:.0f} epochs", highlight=False)

        trials: list[tuple[Method, int]] = [(method, seed) for seed in range(seeds) for method in METHODS[::-1]]
        jobs = min(jobs or os.cpu_count() or 1, len(trials))
        try:
            curves = run_trials(setting, trials, jobs=jobs, on_epoch=on_epoch)
        except KeyboardInterrupt:
            progress.stop()
            console.print("interrupted; nothing was written")
            raise typer.Exit(130) from None

    rows = summarize(curves)
    table = Table(
        "method",
        "train, noisy labels",
        "test, last epoch",
        "test, best epoch",
        "seconds",
        caption_justify="left",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for method, row in rows.items():
        table.add_row(NAMES[method], *map(str, (row.noisy_train, row.test_last, row.test_best, row.seconds)))
    table.caption = f"accuracy in percent, mean ± standard deviation over {seeds} seed(s)"
    console.print(table)
    console.print(conclude(rows, noise_rate))
    picture, numbers = out / "test-accuracy.png", out / "demo.json"
    record = {"setting": asdict(setting), "curves": [asdict(curve) for curve in curves]}
    numbers.write_text(json.dumps(record, indent=1) + "\n")
    with errors_as_messages():
        draw_curves(curves, setting, picture)
    console.print(f"picture: {picture}\nnumbers: {numbers}", highlight=False, soft_wrap=True)
