"""``python -m benchmarks.cost``: what the rules cost, side by side with what they replace."""

import json
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cost.measuring import FULL, QUICK, Record, look_closer, measure
from benchmarks.cost.timing import Spread
from benchmarks.cost.updates import Row
from benchmarks.cost.work import Setting
from deepbilevel_lab.cli.messages import errors_as_messages
from deepbilevel_lab.cli.tables import print_table
from deepbilevel_lab.cli.watching import Lines
from deepbilevel_lab.replacement import write_text

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Unheard(Lines):
    """Does what a run without a terminal does, but for printing it."""

    def message(self, text: str) -> None:
        """See :class:`Listener`."""


@app.command()
def bench(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything that was measured to this file.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny networks and a few rounds, to see that all works; about a minute.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="NETWORK:KxB",
            help="Look closer at one setting, as cifarnet:8x16, and at nothing else: plain loops, bilevel, our rule, "
            "the peer nearest to it, in many rounds. Can be repeated.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="How many, with --setting.", min=1)] = 10,
) -> None:
    r"""Measure time and memory of one update, a training run and the start, beside plain loops and other packages.

    Takes about a quarter of an hour, on one thread. Let nothing else run meanwhile. Other packages are compared with if
    they are installed: pip install -e '.\[bench]'

    Example: python -m benchmarks.cost --json bench.json
    """
    if json_file is not None and not json_file.absolute().parent.is_dir():  # known now, not in a quarter of an hour
        raise typer.BadParameter(f"the folder of {json_file} does not exist; make it first", param_hint="--json")

    if settings and quick:
        raise typer.BadParameter("measures its own settings; drop it or --setting", param_hint="--quick")

    def keep(record: Record) -> None:
        if json_file is not None:
            write_text(json_file, json.dumps(record.as_json(), indent=1) + "\n")

    def tell(text: str) -> None:
        typer.echo(f"measuring {text}", err=True)

    with errors_as_messages():
        if settings:
            record = look_closer([Setting.parse(each) for each in settings], rounds, tell=tell, keep=keep)
        else:
            record = measure(QUICK if quick else FULL, listener=_Unheard(), tell=tell, keep=keep)
    machine = record.machine
    typer.echo(f"{machine['processor']}, one thread, torch {machine['torch']}, Python {machine['python']}")
    _print_updates(record)
    if not settings:
        _print_rest(record)
    if json_file is not None:
        typer.echo(f"all figures: {json_file}")


def _print_updates(record: Record) -> None:
    for setting, rows in record.updates.items():
        print_table(
            ("one update", "ms", "n", "to SGD", "half", "to accum.", "half"),
            map(_cells, rows),
            caption=f"{setting}: processor time, n rounds; ratios within rounds: median, middle half",
            numbers=range(1, 7),
        )
        for row in rows:
            if row.failed is not None:
                typer.echo(f"failed: {row.name}: {row.failed}")


def _print_rest(record: Record) -> None:
    for setting, counted in record.counted.items():
        print_table(
            ("counted work", *next(iter(counted.values()))),
            ([name, *(f"{number:g}" for number in numbers.values())] for name, numbers in counted.items()),
            caption=f"{setting}: of an update, beyond gradient accumulation; bytes in multiples of the model's size",
        )
    settings = list(record.memory)
    print_table(
        ("peak memory", *settings),
        ([name, *(f"{record.memory[each][name]:.2f}" for each in settings)] for name in record.memory[settings[0]]),
        caption="above the parameters, in multiples of their size",
        numbers=range(1, len(settings) + 1),
    )
    training = record.training
    print_table(
        ("a training run", "percent"),
        ([name, f"{100 * share:.2f}"] for name, share in training["shares"].items()),
        caption=f"of forward and backward passes; cifarnet 8x16, {training['num_steps']} steps, an epoch is "
        f"{training['num_images']} images; {training['images_per_second']:.0f} images per second",
    )
    print_table(
        ("start-up", "seconds", "to import torch"),
        (
            [name, f"{each['seconds'].median:.3f}", f"{each['ratio'].median:.3f}"]
            for name, each in record.start_up.items()
        ),
        caption="by the clock on the wall, median",
    )


def _cells(row: Row) -> list[str]:
    if row.seconds is None or row.to_sgd is None or row.to_accumulation is None:
        return [row.name, "failed", *[""] * 5]
    ms = f"{1e3 * row.seconds.median:.1f}"
    return [row.name, ms, str(row.rounds), *_ratio(row.to_sgd), *_ratio(row.to_accumulation)]


def _ratio(spread: Spread) -> tuple[str, str]:
    return f"{spread.median:.3f}", f"{spread.low:.2f}-{spread.high:.2f}"


if __name__ == "__main__":
    app(prog_name="python -m benchmarks.cost")
