"""``deepbilevel train``: a run from the command line."""

import json
import sys
import warnings
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepbilevel_lab.cli import options
from deepbilevel_lab.cli.messages import FAILED, INTERRUPTED, WRONG_USAGE, errors_as_messages, last_words
from deepbilevel_lab.cli.resolving import parse_seeds, resolve, tell_notes
from deepbilevel_lab.cli.table_options import IgnoreOption, TargetOption, TextOption, read_columns_spec
from deepbilevel_lab.cli.tie import read_spec_and_watch
from deepbilevel_lab.records import RunRecord, show_figure, to_json

if TYPE_CHECKING:
    from deepbilevel_lab.processes import Launch
    from deepbilevel_lab.training.spec import RunSpec


def train(
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
    method: Annotated[
        str | None,
        typer.Option(
            help="bilevel (the default; sgd for your own images), cross-validated, sgd, uniform or another rule (a "
            "wrong name lists them all); or your own, as package.module:ClassName."
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="cross-entropy (the default), generalized-cross-entropy, label-smoothing, bootstrap-hard or -soft; "
            "stateful: early-learning, self-paced, forward- or backward-correction, noise-layer, co-teaching, "
            "auxiliary-images."
        ),
    ] = None,
    mixing: Annotated[
        str | None, typer.Option(help="mixup: blend images and labels in pairs; the default for your own images.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Other labels: a named set (worst of CIFAR-10N), or the corrected.csv of an audit."),
    ] = None,
    noise: Annotated[str | None, typer.Option(help="Corrupt labels, as in uniform:0.5.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training images.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Train on this many images only.")] = None,
    batch_size: options.BatchSizeOption = None,
    num_batches: options.NumBatchesOption = None,
    lr: options.LrOption = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of all random numbers.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Several runs, as in 0-4 or 0,2,5.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many to run in parallel.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads per run; half the cores (at most 4) by default.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode image files; 0: none.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other field, as in optimizer.lr=0.1.")
    ] = None,
    spec_file: Annotated[
        Path | None, typer.Option("--spec", help="Start from a .toml or .json file; - reads JSON from standard input.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
    resume: Annotated[bool, typer.Option(help="Resume an existing run, or move it aside and start again.")] = True,
    save_seconds: Annotated[float, typer.Option(min=0, help="At most this many seconds between checkpoints.")] = 60.0,
    timeout: Annotated[
        float,
        typer.Option(min=1, help="Under torchrun: seconds after which a process that does not answer counts as lost."),
    ] = 600.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the whole spec as TOML and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
    tied: Annotated[
        bool,
        typer.Option("--tied", hidden=True, help="Read a spec from one line of standard input; stop when it closes."),
    ] = False,
) -> None:
    """Train a network; rerun the same command to resume after a stop or kill.

    Example: deepbilevel train --data digits --noise uniform:0.5

    On several processes: torchrun --nproc-per-node 2 -m deepbilevel train --data digits --noise uniform:0.5
    """
    sent = read_spec_and_watch() if tied else None  # before torch is loaded: that takes seconds

    from deepbilevel_lab.processes import Launch
    from deepbilevel_lab.specs import to_plain
    from deepbilevel_lab.training.own_rules import check_loaded
    from deepbilevel_lab.training.spec_files import to_toml
    from deepbilevel_lab.training.spreading import check_spread

    launch = Launch() if tied else Launch.find()  # who starts a tied run may be one of many itself; the run is not
    with errors_as_messages(WRONG_USAGE, silent=not launch.is_first):
        given = {"method": method, "loss": loss, "mixing": mixing, "noise": noise, "epochs": epochs}
        given |= {"data.labels": labels, "data.limit": limit, "threads": threads, "seed": seed}
        given |= options.by_key(val, batch_size, num_batches, lr, weights, pretrained=pretrained, freeze=freeze)
        resolved = resolve(
            *(data, data_dir, network, spec_file, given, settings or []),
            text=sent,
            columns=read_columns_spec(target, text, ignore),
        )
        spec = resolved.spec
        check_loaded(spec.method)
        if seeds is not None and seed is not None:
            raise ValueError("--seed and --seeds cannot be given together; --seeds 0-4 runs five")
        if seeds is not None and launch.size > 1:
            raise ValueError(
                f"--seeds {seeds} starts a process for each run, and torchrun has started some already; drop one"
            )
        check_spread(spec, launch.size)
        specs = [spec] if seeds is None else [replace(spec, seed=number) for number in parse_seeds(seeds)]
    if dry_run:
        why = "".join(f"# {line}\n" for line in [*resolved.notes, *resolved.reasons])
        for each in specs if launch.is_first else []:
            typer.echo(json.dumps(to_plain(each)) if as_json else f"# {each.name}-{each.id}\n{why}{to_toml(each)}")
        return
    tell_notes(resolved.notes if launch.is_first else [])
    if len(specs) > 1:
        from deepbilevel_lab.cli.side_by_side import run_seeds
        from deepbilevel_lab.sweeps.local import LocalProcesses

        place = LocalProcesses(out, data_dir, workers=workers, save_seconds=save_seconds, resume=resume)
        raise typer.Exit(run_seeds(specs, place, jobs, quiet=quiet, as_json=as_json))
    record = run_and_watch(
        specs[0],
        launch,
        timeout=timeout,
        quiet=quiet,
        as_json=as_json,
        progress_seconds=1.0 if tied else None,
        out=out,
        data_dir=data_dir,
        workers=workers,
        wait=tied,  # two sweeps may have runs in common
        resume=resume or launch.restarts > 0,  # what torchrun starts again is to go on
        save_seconds=save_seconds,
    )
    if not launch.is_first:
        return
    folder = _find_folder(specs[0], out)
    if as_json:
        from deepbilevel_lab.cli import watching

        results = to_json(record)
        watching.Json().say("done", folder=folder, final=results["final"], best=results["best"])
    else:
        typer.echo(summarize(record, folder, doubtful=specs[0].data.tests_doubtful_labels))


def _find_folder(spec: "RunSpec", out: Path) -> str:
    from deepbilevel_lab.training.folder import RunFolder

    return str(RunFolder.of(spec, out).path)


def run_and_watch(
    spec: "RunSpec",
    launch: "Launch",
    *,
    quiet: bool,
    timeout: float = 600.0,
    as_json: bool = False,
    progress_seconds: float | None = None,
    **arguments: Any,
) -> RunRecord:
    """Train in this process, show how it goes, and return the record; the command ends where training does."""
    from deepbilevel_lab.cli import watching
    from deepbilevel_lab.processes.one_process import FailedElsewhereError, LostProcessError
    from deepbilevel_lab.training.folder import FolderInUseError
    from deepbilevel_lab.training.interruption import Interrupted
    from deepbilevel_lab.training.loop import DivergedError
    from deepbilevel_lab.training.memory import keep_freed_memory
    from deepbilevel_lab.training.run import Listener, train

    keep_freed_memory()
    with ExitStack() as stack:
        stack.enter_context(last_words())
        listener: Listener
        if not launch.is_first:
            listener = Listener()
            warnings.simplefilter("ignore")  # the first process has the same
        elif as_json:
            listener = watching.Json(progress_seconds)
        elif quiet:
            listener = watching.Silence()
        elif sys.stdout.isatty():
            listener = watching.Bar(stack.enter_context(watching.new_bars()))
        else:
            listener = watching.Lines()
        try:
            mendable = (DivergedError, FolderInUseError, LostProcessError)
            with errors_as_messages(FAILED, *mendable), launch.joined(spec.device, timeout, (Interrupted,)):
                return train(spec, listener=listener, **arguments)
        except FailedElsewhereError:
            raise typer.Exit(FAILED) from None
        except (Interrupted, KeyboardInterrupt) as stop:
            if launch.is_first:
                typer.echo(str(stop) or "stopped at once; the last checkpoint counts", err=True)
            raise typer.Exit(INTERRUPTED) from None


def summarize(record: RunRecord, folder: str, *, doubtful: bool = False) -> str:
    """Return the result of a run in a few lines; ``doubtful`` says whether the labels tested on are like the others."""
    figures = {name: show_figure(value) for name, value in record.figures.items()}
    clean = "" if record.figures["train_clean"] is None else f", {figures['train_clean']} on their clean labels"
    best_epoch = "" if record.best is None else f" (epoch {record.best.epoch})"
    trust = ""
    if doubtful:
        trust = "what was tested on was set aside from your data: its labels are as untrusted as the rest (--val)\n"
    return (
        f"test {record.metric} {figures['test']} after the last epoch, {figures['best']} at best{best_epoch}\n{trust}"
        f"train {record.metric} {figures['train']} on labels as given{clean}\n"
        f"{record.samples_per_second or 0:,.0f} samples a second; everything is in {folder}"
    )
