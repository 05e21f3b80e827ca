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
from deepbilevel_lab.cli.options import NamedNetworkOption
from deepbilevel_lab.csv_text import to_csv, without_formula
from deepbilevel_lab.records import clean

if TYPE_CHECKING:
    from torch import Tensor

    from deepbilevel_lab.training.prediction import Asked, Predictor

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
            metavar="INPUT...",
            exists=True,
            help="Image files, folders of images, or .csv tables with a column path; for a run on a table, a table.",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write a .csv table instead of printing.")] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Write the N most probable labels instead of every class; 5 by default with more than 100 classes.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode image files; 0: none.")] = 0,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip files or rows that cannot be read, and list them.")
    ] = False,
    network: NamedNetworkOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the class of images or rows, as CSV: path, label, probability, and the probability of each class.

    Of a table with labels, given_label stands beside the prediction. Rows have an index, counted from 0, and no path.

    Images are cut and scaled as those the network was trained on. For networks of small images (cifar10, digits) the
    middle square is scaled to that size first; digits must be white on black, as in the data set. Where images can
    have several labels, all with a probability of at least 0.5 are given, joined by ";".

    Example: deepbilevel predict runs/digits-digit-cnn-bilevel-5d92f0ebad photos/ --out labels.csv
    """
    from deepbilevel_lab.networks.named_code import name_code
    from deepbilevel_lab.replacement import replacing
    from deepbilevel_lab.training.model_file import load_model
    from deepbilevel_lab.training.prediction import Predictor

    with errors_as_messages():
        if out is not None and not out.parent.is_dir():  # before the work, not after it
            raise FileNotFoundError(f"--out {out} lies in a folder that does not exist; make {out.parent} first")
        name_code(network or "")
        predictor = Predictor(load_model(run))
        if predictor.note:
            typer.echo(f"note: {predictor.note}", err=True)
        answers = _predict(predictor, inputs, workers=workers, skip_bad=skip_bad)
        if top is None and len(predictor.class_names) > _COLUMNS_AT_MOST:
            top = _USUAL_TOP
        if out is not None:
            with replacing(out) as stream:
                stream.write(_to_csv(answers, predictor, top))
    if as_json:
        typer.echo(json.dumps([_to_plain(asked, row, predictor, top) for asked, row in answers]))
    elif out is not None:
        typer.echo(f"{len(answers):,} {'images' if predictor.encoding is None else 'rows'} in {out}", err=True)
    elif sys.stdout.isatty():
        _print(answers, predictor, top)
    else:
        typer.echo(_to_csv(answers, predictor, top), nl=False)


def _predict(
    predictor: "Predictor", inputs: Sequence[Path], *, workers: int, skip_bad: bool
) -> "list[tuple[Asked, Tensor]]":
    from rich.console import Console
    from rich.progress import track

    from deepbilevel_lab.training.prediction import find_images, predict_files, predict_table

    console = Console(stderr=True)
    if predictor.encoding is None:
        images = find_images(inputs)
        found, total = predict_files(predictor, images, workers=workers, skip_bad=skip_bad), len(images)
    elif len(inputs) == 1:
        found, total = predict_table(predictor, inputs[0], skip_bad=skip_bad), None
    else:
        raise ValueError(f"rows are told by their number, so give one table at a time, got {len(inputs)} inputs")
    shown = track(found, "predicting", total=total, console=console, transient=True, disable=not console.is_terminal)
    answers: list[tuple[Asked, Tensor]] = []
    num_bad = 0
    for asked, answer in shown:
        if isinstance(answer, str):
            num_bad += 1
            typer.echo(clean(f"skipped: {answer}"), err=True)
        else:
            answers.append((asked, answer))
    if not answers:
        what = "files can be decoded" if predictor.encoding is None else "rows can be read"
        typer.echo(f"error: none of the {num_bad} {what}; nothing was written", err=True)
        raise typer.Exit(FAILED)
    return answers


def _place_name(predictor: "Predictor") -> str:
    return "path" if predictor.encoding is None else "index"


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


def _to_csv(answers: "Sequence[tuple[Asked, Tensor]]", predictor: "Predictor", top: int | None) -> bytes:
    """Return the table; names of files that are not UTF-8 keep their bytes."""
    has_given = any(asked.given is not None for asked, _ in answers)
    header = [_place_name(predictor), *(["given_label"] if has_given else []), "label", "probability"]
    if top is None:
        # A class of one of these names must not hide the column.
        header += [f"class {name}" if name in header else name for name in predictor.class_names]
    elif not predictor.multi_label:
        numbers = range(2, min(top, len(predictor.class_names)) + 1)
        header += [name for number in numbers for name in (f"label{number}", f"probability{number}")]
    rows = [header]
    for asked, row in answers:
        labels = _ranked(row, predictor, top)
        if predictor.multi_label:
            cells = [";".join(name for name, _ in labels), ";".join(_decimal(value) for _, value in labels)]
        else:
            cells = [text for name, value in labels[: top or 1] for text in (name, _decimal(value))]
        given = [asked.given or ""] if has_given else []
        rows.append([_place(asked.place), *given, *cells, *(map(_decimal, row.tolist()) if top is None else ())])
    harmless = ([place, *map(without_formula, others)] for place, *others in rows)
    return to_csv(harmless).encode("utf-8", "surrogateescape")


def _place(path: str) -> str:
    """Return a path that leads to the same file and is no formula."""
    return path if without_formula(path) == path else f"./{path}"


def _decimal(value: float) -> str:
    return f"{value:.{_DIGITS}f}"


def _to_plain(asked: "Asked", row: "Tensor", predictor: "Predictor", top: int | None) -> dict[str, Any]:
    labels = _ranked(row, predictor, top)
    plain: dict[str, Any] = {"path": asked.place} if predictor.encoding is None else {"index": int(asked.place)}
    if asked.given is not None:
        plain["given_label"] = asked.given
    if predictor.multi_label:
        plain["labels"] = [name for name, _ in labels]
    else:
        plain["label"], plain["probability"] = labels[0]
    if top is None:
        rounded = [round(value, _DIGITS) for value in row.tolist()]
        return {**plain, "probabilities": dict(zip(predictor.class_names, rounded, strict=True))}
    return {**plain, "probabilities": dict(labels)}


def _print(answers: "Sequence[tuple[Asked, Tensor]]", predictor: "Predictor", top: int | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    has_given = any(asked.given is not None for asked, _ in answers)
    table = Table(_place_name(predictor), *(["given"] if has_given else []), "label", "probability", "next")
    table.columns[-2].justify = "right"
    count = None if predictor.multi_label else _SHOWN_TOP
    for asked, row in answers:
        (name, value), *others = _ranked(row, predictor, top or count) or [("none", 0.0)]
        readable = os.fsencode(asked.place).decode("utf-8", "replace")
        given = [Text(clean(asked.given or ""))] if has_given else []
        following = ", ".join(f"{name} {value:.1%}" for name, value in others)
        # As text: brackets in a name are not markup.
        cells = [Text(clean(name)), f"{value:.1%}" if value else "", Text(clean(following))]
        table.add_row(Text(clean(readable)), *given, *cells)
    Console().print(table)
