"""``deepbilevel train``: a run from the command line."""

import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepbilevel.cli.messages import FAILED, INTERRUPTED, WRONG_USAGE, errors_as_messages, last_words

if TYPE_CHECKING:
    from deepbilevel.training.spec import RunSpec


def train(
    data: Annotated[
        str | None, typer.Option(help="A data set (`deepbilevel data list`), a folder of images, or a .csv table.")
    ] = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="DEEPBILEVEL_DATA", help="Where data sets stand; for csv and folder the data itself.")
    ] = Path("data"),
    network: Annotated[str | None, typer.Option(help="A network; the usual one for the data unless told.")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="bilevel (the default), cross-validated, sgd, uniform, and-mask, median-of-three, gsnr or "
            "agreement-filter."
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="cross-entropy (the default), generalized-cross-entropy, label-smoothing, bootstrap-hard or -soft; "
            "with a memory: early-learning, self-paced, forward- or backward-correction, noise-layer, co-teaching, "
            "auxiliary-images."
        ),
    ] = None,
    mixing: Annotated[str | None, typer.Option(help="mixup: blend images and labels in pairs.")] = None,
    noise: Annotated[str | None, typer.Option(help="Make labels wrong, as in uniform:0.5.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training images.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Train on that many images only.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Decides everything random.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Several runs, as in 0-4 or 0,2,5.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many of them side by side.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a run; half the cores (4 at most) unless told.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode image files; 0: none.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other field, as in optimizer.lr=0.1.")
    ] = None,
    spec_file: Annotated[
        Path | None, typer.Option("--spec", help="Begin from a .toml or .json file; - reads JSON from the input.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
    resume: Annotated[bool, typer.Option(help="Go on with what is there, or move it aside and start anew.")] = True,
    save_seconds: Annotated[float, typer.Option(min=0, help="Seconds between two checkpoints at the most.")] = 60.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the whole spec as TOML and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
) -> None:
    """Train a network; the same command goes on where it was stopped or killed.

    Example: deepbilevel train --data digits --noise uniform:0.5
    """
    from deepbilevel.specs import to_plain
    from deepbilevel.training.spec_files import to_toml

    with errors_as_messages(WRONG_USAGE):
        spec = _resolve(data, data_dir, network, spec_file)
        given = {"method": method, "loss": loss, "mixing": mixing, "noise": noise, "epochs": epochs}
        spec = _changed(spec, {**given, "data.limit": limit, "threads": threads, "seed": seed}, settings or [])
        numbers = _parse_seeds(seeds, seed)
    specs = [spec if number is None else replace(spec, seed=number) for number in numbers]
    if dry_run:
        for each in specs:
            typer.echo(json.dumps(to_plain(each)) if as_json else f"# {each.name}-{each.id}\n{to_toml(each)}")
        return
    if len(specs) > 1:
        from deepbilevel.cli.side_by_side import run_side_by_side

        options = ["--out", out, "--data-dir", data_dir, "--workers", workers, "--save-seconds", save_seconds]
        options.append("--resume" if resume else "--no-resume")
        raise typer.Exit(run_side_by_side(specs, jobs, list(map(str, options)), quiet=quiet, as_json=as_json))
    _run(
        specs[0],
        quiet=quiet,
        as_json=as_json,
        out=out,
        data_dir=data_dir,
        workers=workers,
        resume=resume,
        save_seconds=save_seconds,
    )


def _resolve(data: str | None, data_dir: Path, network: str | None, spec_file: Path | None) -> "RunSpec":
    from deepbilevel.specs import from_plain
    from deepbilevel.training.defaults import default_spec
    from deepbilevel.training.spec import RunSpec
    from deepbilevel.training.spec_files import load_spec

    if spec_file is not None:
        if data is not None or network is not None:
            raise ValueError("--spec already says which data and network; change them in the file, or with --set")
        return from_plain(RunSpec, json.load(sys.stdin)) if str(spec_file) == "-" else load_spec(spec_file)
    if data is None:
        raise ValueError("--data is missing; `deepbilevel data list` shows what there is, digits need no download")
    kind, path = _own_images(data, data_dir)
    return default_spec(kind, network, path=path)


def _own_images(data: str, data_dir: Path) -> tuple[str, str]:
    """Return the name in the catalog and the place, also where somebody named the place itself."""
    from deepbilevel.data import DATA_SETS

    if data not in DATA_SETS and Path(data).is_dir():
        return "folder", data
    if data not in DATA_SETS and Path(data).suffix == ".csv":
        return "csv", data
    return data, str(data_dir)


def _changed(spec: "RunSpec", given: dict[str, Any], settings: list[str]) -> "RunSpec":
    from deepbilevel.specs import with_value

    for key, value in given.items():
        if value is not None:
            spec = with_value(spec, key, value)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set needs key=value, as in optimizer.lr=0.1, got {setting!r}")
        spec = with_value(spec, key.strip(), value.strip())
    return spec


def _parse_seeds(seeds: str | None, seed: int | None) -> list[int | None]:
    if seeds is None:
        return [None]
    if seed is not None:
        raise ValueError("--seed and --seeds cannot be given together; --seeds 0-4 runs five")
    numbers: list[int | None] = []
    for part in seeds.split(","):
        first, _, last = part.partition("-")
        try:
            chosen = range(int(first), int(last or first) + 1)
        except ValueError:
            chosen = range(0)
        if not chosen:
            raise ValueError(f"--seeds must be written as in 0-4 or 0,2,5, got {seeds!r}")
        numbers.extend(number for number in chosen if number not in numbers)
    return numbers


def _run(spec: "RunSpec", *, quiet: bool, as_json: bool, **options: Any) -> None:
    from deepbilevel.cli import watching
    from deepbilevel.training.folder import FolderInUseError, RunFolder
    from deepbilevel.training.interruption import Interrupted
    from deepbilevel.training.loop import DivergedError
    from deepbilevel.training.memory import keep_freed_memory
    from deepbilevel.training.run import Listener, train

    keep_freed_memory()
    with ExitStack() as stack:
        stack.enter_context(last_words())
        listener: Listener
        if as_json:
            listener = watching.Json()
        elif quiet:
            listener = watching.Silence()
        elif sys.stdout.isatty():
            listener = watching.Bar(stack.enter_context(watching.new_bars()))
        else:
            listener = watching.Lines()
        try:
            with errors_as_messages(FAILED, DivergedError, FolderInUseError):
                record = train(spec, listener=listener, **options)
        except (Interrupted, KeyboardInterrupt) as stop:
            typer.echo(str(stop) or "stopped at once; the last checkpoint counts", err=True)
            raise typer.Exit(INTERRUPTED) from None
    folder = str(RunFolder.of(spec, options["out"]).path)
    if as_json:
        watching.Json().say("done", folder=folder, final=record["final"], best=record["best"])
    else:
        typer.echo(summarize(record, folder))


def summarize(record: dict[str, Any], folder: str) -> str:
    """Return the result of a run in a few lines."""
    final, best = record["final"], record["best"]
    clean = f", {final['train_clean']:.2f} on their clean labels" if "train_clean" in final else ""
    metric, best_epoch = record["metric"], f"{best['test']:.2f} at best (epoch {best['epoch']})"
    return (
        f"test {metric} {final['test']:.2f} after the last epoch, {best_epoch}\n"
        f"train {metric} {final['train']:.2f} on labels as given{clean}; gap {final['gap']:.2f}\n"
        f"{record['samples_per_second']:,.0f} images a second; everything is in {folder}"
    )
