"""What an audit leaves behind in its folder: tables for other tools, and the page for a person."""

import hashlib
import importlib
import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepbilevel.audit import NoiseRate
from deepbilevel_lab.audit.findings import Findings
from deepbilevel_lab.audit.page import make_page
from deepbilevel_lab.audit.pictures import PER_SHEET, are_small, make_sheets
from deepbilevel_lab.data import ImageSet, LabelledSet
from deepbilevel_lab.data.table import Table
from deepbilevel_lab.replacement import remove_leftovers, replacing

_SHOWN_COLUMNS = 30
_SHOWN_LENGTH = 2000  # characters of a cell
_SHOWN_OF_SEVERAL = 1000  # at least; where images have several labels, all of them are too many


@dataclass(frozen=True)
class Written:
    """The files."""

    page: Path
    table: Path
    probabilities: Path
    parquet: Path | None


def write_findings(
    findings: Findings,
    out: Path,
    *,
    show: int | None = None,
    on_picture: Callable[[int, int], None] = lambda num_done, total: None,
) -> Written:
    """Write tables and page; each file is replaced whole, and the page last.

    Args:
        findings: what to write.
        out: the folder.
        show: how many labels are on the page, the most suspicious first; all by default.
        on_picture: told how many pictures are made, of how many.
    """
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    issues = findings.issues
    table, probabilities = out / "issues.csv", out / "pred_probs.npy"
    issues.write_csv(table, class_names=findings.class_names, paths=findings.files)
    with replacing(probabilities) as stream:
        content = io.BytesIO()
        np.save(content, findings.probabilities, allow_pickle=False)
        stream.write(content.getvalue())
    parquet = _write_parquet(table, out / "issues.parquet", findings)
    rows, pictured = _page_rows(findings, show)
    rows["id"] = hashlib.sha256(json.dumps([findings.title, rows]).encode()).hexdigest()[:10]
    sheets = _sheets(findings.data, pictured, on_picture)
    curves = _curves(findings, len(rows["index"]))
    rows["numPoints"] = curves.shape[2]
    page = out / "index.html"
    parts = make_page(
        findings.title, describe(findings), rows, curves=curves.tobytes(), sheets=sheets, noun=findings.data.noun
    )
    with replacing(page) as stream:
        stream.writelines(parts)
    return Written(page, table, probabilities, parquet)


def describe(findings: Findings) -> list[str]:
    """Return what was found, a sentence each."""
    issues = findings.issues
    several = issues.class_index is not None
    num_images = len(np.unique(issues.index)) if several else len(issues)
    noun = findings.data.noun
    facts = [f"{num_images:,} {noun}s, {len(findings.class_names):,} classes."]
    facts.append(
        _describe_rate(issues.noise_rate, "of the given labels are wrong" if several else "of the labels are wrong")
    )
    if issues.missing_rate is not None:
        facts.append(_describe_rate(issues.missing_rate, "of the absent labels are missing"))
    if issues.is_label_issue.any():
        facts.append(f"{int(issues.is_label_issue.sum()):,} are more probably wrong than right.")
    if issues.num_unvisited:
        facts.append(f"{issues.num_unvisited:,} {noun}s were never visited in training: nothing is known of them.")
    if issues.num_left_out:
        facts.append(f"{issues.num_left_out:,} visits were left out, because the network's answer was not finite.")
    return facts


def _describe_rate(rate: NoiseRate, what: str) -> str:
    if not rate.told_apart:
        return (
            f"How many {what} cannot be told: right and wrong ones do not separate. The ranking still holds; look at "
            "its top."
        )
    return f"About {100 * rate.estimate:.1f} % {what} (95 % interval: {100 * rate.low:.1f} to {100 * rate.high:.1f} %)."


def _write_parquet(table: Path, path: Path, findings: Findings) -> Path | None:
    """Write the table as Parquet where pyarrow is installed; what an earlier audit left must not stand beside it."""
    try:
        arrow_csv = importlib.import_module("pyarrow.csv")
        write_table = importlib.import_module("pyarrow.parquet").write_table
    except ImportError:
        path.unlink(missing_ok=True)
        return None
    # Classes may be called 007 or null, which are not 7 and nothing.
    has_names = any(not name.isdecimal() or name != str(int(name)) for name in findings.class_names)
    named = ["given_label", "predicted_label"] if findings.issues.class_index is None else ["class_index"]
    as_text = dict.fromkeys(["path", *(named if has_names else [])], "string")
    cells = arrow_csv.ConvertOptions(column_types=as_text, strings_can_be_null=False)
    lines = arrow_csv.ParseOptions(newlines_in_values=True)
    with replacing(path) as stream:
        write_table(arrow_csv.read_csv(table, parse_options=lines, convert_options=cells), stream)
    return path


def _page_rows(findings: Findings, show: int | None) -> tuple[dict[str, Any], list[int]]:
    """Return what the page shows, column by column, and which images it has pictures of, in their order."""
    issues, names = findings.issues, list(findings.class_names)
    given, predicted = issues.given_label, issues.predicted_label
    if issues.class_index is not None:  # each class is there or not: two names
        names = [text for name in names for text in (name, f"not {name}")]
        given, predicted = (2 * issues.class_index + 1 - each.clip(min=0) for each in (given, predicted))
        show = show or max(int(issues.is_label_issue.sum()), _SHOWN_OF_SEVERAL)
    count = min(len(issues), show or len(issues))
    index = issues.index[:count]
    pictured = list(dict.fromkeys(index.tolist()))
    place_of = {number: place for place, number in enumerate(pictured)}
    rows = {
        "names": names,
        "oneLabel": issues.class_index is None,
        "perSheet": PER_SHEET,
        "small": isinstance(findings.data, ImageSet) and are_small(findings.data),
        "noun": findings.data.noun,
        "flagged": min(int(issues.is_label_issue.sum()), count),
        "total": len(issues),
        "index": index.tolist(),
        "path": [findings.files[number] for number in index.tolist()] if any(findings.files) else None,
        "given": given[:count].tolist(),
        "predicted": predicted[:count].tolist(),
        "score": [_number(value) for value in issues.label_score[:count].tolist()],
        "p": [_number(value) for value in issues.p_wrong[:count].tolist()],
        "picture": [place_of[number] for number in index.tolist()],
    }
    if isinstance(findings.data, Table):
        rows |= _cells(findings.data, index.tolist())
    return rows, pictured


def _sheets(data: LabelledSet, pictured: list[int], on_picture: Callable[[int, int], None]) -> Iterator[list[bytes]]:
    num_done = 0
    for sheet in make_sheets(data, pictured) if isinstance(data, ImageSet) else ():
        yield sheet
        num_done += len(sheet)
        on_picture(num_done, len(pictured))


def _curves(findings: Findings, count: int) -> npt.NDArray[np.uint8]:
    """Return the curves of the first rows, ``[rows, 2, points]``: of the label, and of what speaks against it.

    Probabilities are in steps of 1/254, and 255 is where nothing is known.
    """
    issues = findings.issues
    place = np.searchsorted(np.unique(issues.index), issues.index[:count])
    curves = findings.curves[place]
    if issues.class_index is not None:
        present = curves[np.arange(count), :, issues.class_index[:count]]
        given = np.where(issues.given_label[:count, None] == 1, present, 1 - present)
        curves = np.stack([given, 1 - given], axis=2)
    return np.where(np.isnan(curves), 255, np.round(254 * np.nan_to_num(curves))).astype(np.uint8).transpose(0, 2, 1)


def _cells(table: Table, indices: list[int]) -> dict[str, Any]:
    """Return what the page shows of these rows: the text, or the first columns."""
    text = table.spec.text
    names = list(table.columns) if text is None else [text, *(name for name in table.columns if name != text)]
    names = names[:_SHOWN_COLUMNS]
    shown = [table.columns[name] for name in names]
    cells = [[_shortened(column[index]) for column in shown] for index in indices]
    return {"columns": names, "cells": cells, "hasText": text is not None}


def _shortened(cell: str) -> str:
    return cell if len(cell) <= _SHOWN_LENGTH else f"{cell[:_SHOWN_LENGTH]} ..."


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
