"""``deepbilevel predict``: what a trained network says about images."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepbilevel_lab.cli.evaluate import RunArgument
from deepbilevel_lab.cli.messages import FAILED, errors_as_messages
from deepbilevel_lab.csv_text import to_csv, without_formula
from deepbilevel_lab.records import clean

if TYPE_CHECKING:
    from torch import Tensor

    from deepbilevel_lab.training.prediction import Predictor

_COLUMNS_AT_MOST = 100
_USUAL_TOP = 5
_SHOWN_TOP = 3
_PRESENT = 0.5
_DIGITS = 6

_Label = tuple[str, float]
"""A class and its probability."""


def predict(
    run: RunArgument,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...", exists=True, help="Image files, folders of images, or .csv tables with a column path."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write a .csv table instead of printing.")] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="List the N best labels instead of every class; usual with more than 100 classes: 5."),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode image files; 0: none.")] = 0,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out files that cannot be decoded, and name them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which class images belong to, as CSV: path, label, probability, and the probability of each class.

    Images are cut and scaled as those the network was trained on. For networks of small images (cifar10, digits) the
    middle square is scaled to that size first; digits must be white on black, as in the data set. Where images can
    have several labels, all with a probability of at least 0.5 are given, joined by ";".

    Example: deepbilevel predict runs/digits-digit-cnn-bilevel-5d92f0ebad photos/ --out labels.csv
    """
    from deepbilevel_lab.replacement import replacing
    from deepbilevel_lab.training.model_file import load_model
    from deepbilevel_lab.training.prediction import Predictor, find_images

    with errors_as_messages():
        if out is not None and not out.parent.is_dir():  # before the work, not after it
            raise FileNotFoundError(f"--out {out} lies in a folder that does not exist; make {out.parent} first")
        paths = find_images(inputs)
        predictor = Predictor(load_model(run))
        if predictor.note:
            typer.echo(f"note: {predictor.note}", err=True)
        answers = _predict(predictor, paths, workers=workers, skip_bad=skip_bad)
        if not answers:
            typer.echo(f"error: none of the {len(paths)} files can be decoded; nothing was written", err=True)
            raise typer.Exit(FAILED)
        if top is None and len(predictor.class_names) > _COLUMNS_AT_MOST:
            top = _USUAL_TOP
        if out is not None:
            with replacing(out) as stream:
                stream.write(_to_csv(answers, predictor, top))
    if as_json:
        typer.echo(json.dumps([_to_plain(path, row, predictor, top) for path, row in answers]))
    elif out is not None:
        typer.echo(f"{len(answers):,} images in {out}", err=True)
    elif sys.stdout.isatty():
        _print(answers, predictor, top)
    else:
        typer.echo(_to_csv(answers, predictor, top), nl=False)


def _predict(
    predictor: "Predictor", paths: Sequence[Path], *, workers: int, skip_bad: bool
) -> "list[tuple[Path, Tensor]]":
    from rich.console import Console
    from rich.progress import track

    from deepbilevel_lab.training.prediction import predict_files

    console = Console(stderr=True)
    found = predict_files(predictor, paths, workers=workers, skip_bad=skip_bad)
    shown = track(
        found, "predicting", total=len(paths), console=console, transient=True, disable=not console.is_terminal
    )
    answers: list[tuple[Path, Tensor]] = []
    for path, answer in shown:
        if isinstance(answer, str):
            typer.echo(clean(f"skipped: {answer}"), err=True)
        else:
            answers.append((path, answer))
    return answers


def _ranked(row: "Tensor", predictor: "Predictor", count: int | None) -> list[_Label]:
    """Return the classes and their probabilities, the most probable first; of several labels those that are present."""
    values, numbers = row.sort(descending=True, stable=True)
    labels = [
        (predictor.class_names[number], round(value, _DIGITS))
        for number, value in zip(numbers.tolist(), values.tolist(), strict=True)
    ]
    if predictor.multi_label:
        labels = [each for each in labels if each[1] >= _PRESENT]
    return labels[:count]


def _to_csv(answers: "Sequence[tuple[Path, Tensor]]", predictor: "Predictor", top: int | None) -> bytes:
    """Return the table; names of files that are not UTF-8 keep their bytes."""
    header = ["path", "label", "probability"]
    if top is None:
        # A class of one of these names must not hide the column.
        header += [f"class {name}" if name in header else name for name in predictor.class_names]
    elif not predictor.multi_label:
        numbers = range(2, min(top, len(predictor.class_names)) + 1)
        header += [name for number in numbers for name in (f"label{number}", f"probability{number}")]
    rows = [header]
    for path, row in answers:
        labels = _ranked(row, predictor, top)
        if predictor.multi_label:
            cells = [";".join(name for name, _ in labels), ";".join(_decimal(value) for _, value in labels)]
        else:
            cells = [text for name, value in labels[: top or 1] for text in (name, _decimal(value))]
        rows.append([_place(path), *cells, *(map(_decimal, row.tolist()) if top is None else ())])
    harmless = ([place, *map(without_formula, others)] for place, *others in rows)
    return to_csv(harmless).encode("utf-8", "surrogateescape")


def _place(path: Path) -> str:
    """Return a path that leads to the same file and is no formula."""
    return str(path) if without_formula(str(path)) == str(path) else f"./{path}"


def _decimal(value: float) -> str:
    return f"{value:.{_DIGITS}f}"


def _to_plain(path: Path, row: "Tensor", predictor: "Predictor", top: int | None) -> dict[str, Any]:
    labels = _ranked(row, predictor, top)
    plain: dict[str, Any] = {"path": str(path)}
    if predictor.multi_label:
        plain["labels"] = [name for name, _ in labels]
    else:
        plain["label"], plain["probability"] = labels[0]
    if top is None:
        rounded = [round(value, _DIGITS) for value in row.tolist()]
        return {**plain, "probabilities": dict(zip(predictor.class_names, rounded, strict=True))}
    return {**plain, "probabilities": dict(labels)}


def _print(answers: "Sequence[tuple[Path, Tensor]]", predictor: "Predictor", top: int | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("path", "label", "probability", "next")
    table.columns[2].justify = "right"
    count = None if predictor.multi_label else _SHOWN_TOP
    for path, row in answers:
        (name, value), *others = _ranked(row, predictor, top or count) or [("none", 0.0)]
        readable = os.fsencode(path).decode("utf-8", "replace")
        following = ", ".join(f"{name} {value:.1%}" for name, value in others)
        # As text: brackets in a name are not markup.
        table.add_row(Text(clean(readable)), Text(clean(name)), f"{value:.1%}" if value else "", Text(clean(following)))
    Console().print(table)
