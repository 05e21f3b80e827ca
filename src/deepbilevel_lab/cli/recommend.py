"""``deepbilevel recommend``: short trials on one's own data, and one page of advice."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated

import typer

from deepbilevel_lab.cli import options
from deepbilevel_lab.cli.messages import INTERRUPTED, WRONG_USAGE, errors_as_messages
from deepbilevel_lab.cli.places import JOBS_HELP, ON_HELP, read_place
from deepbilevel_lab.cli.resolving import resolve, split_settings
from deepbilevel_lab.cli.table_options import IgnoreOption, TargetOption, TextOption, read_columns_spec

if TYPE_CHECKING:
    from deepbilevel_lab.advice.advising import Advice
    from deepbilevel_lab.sweeps.sweep import Sweep
    from deepbilevel_lab.sweeps.trials import Outcome

_SECONDS = {"s": 1, "m": 60, "h": 3600}


def recommend(
    data: options.DataOption = None,
    val: options.ValOption = None,
    data_dir: Annotated[
        Path,
        typer.Option(envvar="DEEPBILEVEL_DATA", help="The folder of data sets."),
    ] = Path("data"),
    target: TargetOption = None,
    text: TextOption = None,
    ignore: IgnoreOption = None,
    network: options.NetworkOption = None,
    weights: options.WeightsOption = None,
    pretrained: options.PretrainedOption = False,
    freeze: options.FreezeOption = False,
    budget: Annotated[str, typer.Option(help="Time for all trials together, as in 30m, 2h or 90s.")] = "30m",
    noise: Annotated[
        str | None, typer.Option(help="Corrupt labels first, to try the command, as in uniform:0.5.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="The most epochs a trial may take.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use this many images only.")] = None,
    batch_size: options.BatchSizeOption = None,
    num_batches: options.NumBatchesOption = None,
    lr: options.LrOption = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of all random numbers.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help=JOBS_HELP)] = None,
    on: Annotated[str, typer.Option("--on", help=ON_HELP)] = "local",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads per trial.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes per trial that decode image files; 0: none.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other field, for all trials, as in group.batch_size=8."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for trials and record.")] = Path("runs"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the advice only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
) -> None:
    """Find out what to train with, by short trials judged on held-out noisy labels.

    Example: deepbilevel recommend --data photos/ --budget 30m
    """
    with errors_as_messages(WRONG_USAGE):
        from deepbilevel_lab.advice.stages import prepared

        _check_settings(settings or [])
        seconds, place = read_duration(budget), read_place(on)
        given = {"noise": noise, "epochs": epochs, "data.limit": limit, "seed": seed, "threads": threads}
        given |= options.by_key(val, batch_size, num_batches, lr, weights, pretrained=pretrained, freeze=freeze)
        base = resolve(
            *(data, data_dir, network, None, given, settings or []),
            columns=read_columns_spec(target, text, ignore),
            plain=True,
            prepare=prepared,
        ).spec
        if base.data.entry.multi_label:
            raise ValueError(f"recommend needs one label per image; {base.data.name} has several: use compare --tune")

    from deepbilevel_lab.advice.advising import InterruptedTrialsError, advise
    from deepbilevel_lab.cli.side_by_side import run_and_show
    from deepbilevel_lab.sweeps.sweep import Recorder
    from deepbilevel_lab.sweeps.trials import Watcher
    from deepbilevel_lab.training.interruption import Interruption
    from deepbilevel_lab.training.spec_files import save_spec

    def run(stage: "Sweep", *, keep: bool) -> "Sequence[Outcome]":
        recorder = Recorder(stage, out) if keep else Watcher()
        trials = stage.trials()
        count = jobs or place.usual_jobs(len(trials))
        outcomes = run_and_show(trials, executor, count, quiet=quiet, as_json=as_json, also=recorder)
        if any(outcome.status not in ("done", "failed") for outcome in outcomes):
            raise InterruptedTrialsError
        return outcomes

    def say(text: str) -> None:
        if not quiet and not as_json:
            typer.echo(text)

    with errors_as_messages(), Interruption(), place.open(out, data_dir, workers=workers) as executor:
        try:
            advice = advise(
                base, out=out, data_dir=data_dir, budget=seconds, jobs=jobs or place.usual_jobs(1), run=run, say=say
            )
        except InterruptedTrialsError:
            typer.echo("stopped, and saved where it stood; rerun the same command to resume", err=True)
            raise typer.Exit(INTERRUPTED) from None
        recorder = Recorder(advice.final, out, find_record=executor.find_record)
        recorder.changed([])
        spec_file = recorder.path.with_suffix(".toml")
        # To train on all images: those set aside have served their purpose.
        everything = replace(advice.spec.data, selection=None, selection_by_seed=False)
        save_spec(replace(advice.spec, data=everything), spec_file)
        _print(advice, recorder.path, spec_file, as_json=as_json)


def _check_settings(settings: list[str]) -> None:
    for key, _ in split_settings(settings):
        if key.partition(".")[0] in ("method", "loss", "mixing", "weight_averaging"):
            raise ValueError(
                f"--set {key} belongs to what recommend finds out; to compare methods of your own choice, use "
                "`deepbilevel compare --tune`"
            )


def read_duration(text: str) -> float:
    """Return seconds.

    >>> read_duration("30m"), read_duration("1.5h"), read_duration("90")
    (1800.0, 5400.0, 90.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"--budget must be a time, as in 30m, 2h or 90s, got {text!r}")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def _print(advice: "Advice", record: Path, spec_file: Path, *, as_json: bool) -> None:
    from deepbilevel_lab.advice.candidates import BASELINE, CANDIDATES
    from deepbilevel_lab.cli.tables import in_lines, print_table
    from deepbilevel_lab.records import to_json

    verdict = advice.verdict
    command = f"deepbilevel train --spec {shlex.quote(str(spec_file))}"
    if as_json:
        said = {"event": "recommended", **to_json(verdict), "text": verdict.to_text(), "command": command}
        typer.echo(json.dumps({**said, "left_out": advice.left_out, "record": str(record)}))
        return
    rows = [
        [
            each.name,
            f"{each.lr:g}",
            f"{each.accuracy:.1f}",
            "" if each.difference is None else str(each.difference),
            "" if each.cost is None else f"{each.cost:.2f}",
        ]
        for each in verdict.lines
    ]
    caption = (
        f"accuracy in percent on {verdict.num_images} samples set aside, against their labels as given; difference to "
        "the baseline with its 95 % interval, over samples and seeds; cost: training time relative to the baseline"
    )
    print_table(["method", "lr", "accuracy", "difference", "cost"], rows, caption=caption)
    valid = (
        "Valid while most labels of every class are right: then the method that agrees more often with noisy labels "
        "also agrees more often with right ones. If a class is mostly mislabelled, this cannot see it."
    )
    typer.echo(f"\n{in_lines(verdict.to_text())}\n\n{in_lines(valid)}")
    for name, why in advice.left_out.items():
        typer.echo(f"left out: {name}, because {why}")
    typer.echo(f"\nTrain it:\n  {command}\n\nIn your own loop:\n{indent(CANDIDATES[verdict.name].lines, '  ')}")
    if verdict.name != BASELINE:
        typer.echo(f"\nand average the weights:\n{indent(CANDIDATES[BASELINE].lines, '  ')}")
    typer.echo(f"\nrecord: {record}")
