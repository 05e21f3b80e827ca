"""A report from beginning to end: records are read, put together, drawn and written. Same records, same bytes."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deepbilevel_lab.drawing.figures import Figure
from deepbilevel_lab.drawing.pictures import can_convert, write_drawing
from deepbilevel_lab.drawing.svg import draw_figure
from deepbilevel_lab.records import Cell, CellRun, RunRecord, SweepRecord, from_json, to_json
from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.report.cost_figures import growth_figure, memory_table, updates_table
from deepbilevel_lab.report.cost_records import Costs
from deepbilevel_lab.report.page import Section, make_page
from deepbilevel_lab.report.records import Problem, Records, read_records
from deepbilevel_lab.report.result_figures import result_figures
from deepbilevel_lab.report.run_figures import Setting, run_figure, settings_of, test_figure
from deepbilevel_lab.report.run_names import names_apart
from deepbilevel_lab.report.summaries import (
    MISSING,
    count_statuses,
    distinct,
    is_not_run,
    is_synthetic,
    parts_not_run,
    parts_run,
    standing,
)
from deepbilevel_lab.report.tables import loose_table, planned_table, results_csv, results_table, runs_table, table_csv
from deepbilevel_lab.report.verdicts import is_advice, verdict_of, verdict_of_runs

_BEST_FIRST = ("done", "running", "interrupted", "failed", MISSING)
FIGURES, TABLES, PAGE = "figures", "tables", "index.html"


@dataclass(frozen=True)
class Made:
    """What a report consists of.

    Attributes:
        problems: files that were passed over; the page names them, too.
        pictures: whether PNG and PDF were made; they take an optional package.
    """

    page: Path
    num_sweeps: int
    num_runs: int
    num_figures: int
    num_tables: int
    problems: tuple[Problem, ...]
    pictures: bool


def make_report(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Made:
    """Make a report of all records under ``folder`` in ``out``, ``folder/report`` by default."""
    folder = Path(folder)
    records = read_records(folder)
    out = folder / "report" if out is None else Path(out)
    sections, tables = _put_together(records)
    figures = [figure for section in sections for figure in _figures_of(section) if figure.panels]
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"out {out} is a file; name a folder")
    for place in (out / FIGURES, out / TABLES):
        place.mkdir(parents=True, exist_ok=True)
    pictures = can_convert()
    endings = ("svg", "png", "pdf") if pictures else ("svg",)
    files = {figure.slug: [f"{FIGURES}/{figure.slug}.{ending}" for ending in endings] for figure in figures}
    files |= {slug: [f"{TABLES}/{slug}.csv"] for slug in tables}
    for figure in figures:
        svg = draw_figure(figure)
        for address in files[figure.slug]:
            write_drawing(svg, out / address)
    for slug, text in tables.items():
        write_text(out / TABLES / f"{slug}.csv", text)
    page = out / PAGE
    title = _title(records, folder)
    write_text(page, make_page(title, sections, _count_runs(records), records.problems, files))
    return Made(page, len(records.sweeps), len(records.runs), len(figures), len(tables), records.problems, pictures)


def draw_comparison(record: SweepRecord, path: Path) -> None:
    """Write the page's figure of a comparison to ``path``, as PNG; beside it is no table, so it says more by itself."""
    sweep = from_json(SweepRecord, to_json(record))  # as all read it: texts that a drawing can hold
    sweep = replace(sweep, cells=tuple(replace(cell, row=_with_standing(cell)) for cell in sweep.cells))
    (figure,) = result_figures(sweep, sweep.name, sweep.metric or "accuracy")
    count = len(sweep.seeds)
    seeds = "one seed" if count == 1 else f"{count} seeds"
    epochs = [f"{sweep.base['epochs']} epochs"] if sweep.base is not None else []
    figure = replace(
        figure,
        title=", ".join([figure.title, *epochs, seeds]),
        panels=tuple(panel for panel in figure.panels if panel.rows),  # which name methods without a legend
        keys=(*figure.keys, ("bar", "standard deviation over seeds")) if figure.panels and count > 1 else figure.keys,
    )
    write_drawing(draw_figure(figure), path)


def draw_test_curves(record: SweepRecord, runs: Iterable[RunRecord], path: Path, *, about: str | None = None) -> bool:
    """Write test figures over epochs to ``path``, as PNG; return False and write nothing if no run has any.

    Args:
        record: the comparison.
        runs: its runs.
        path: of the picture.
        about: what is compared, for its title; by default what the record says.
    """
    settings = settings_of(record, {run.id: run for run in runs})
    if not settings:
        return False
    (setting,) = settings
    count = len({run.seed for _, run in setting.runs})
    seeds = "one seed" if count == 1 else f"mean and range of {count} seeds"
    title = f"{about or f'{record.title}: {setting.title}'}, {seeds}"
    write_drawing(draw_figure(test_figure(setting, distinct(cell.row for cell in record.cells), title, "test")), path)
    return True


def _with_standing(cell: Cell) -> str:
    is_partial = {"done"} < {run.status for run in cell.runs}
    return f"{cell.row} ({standing(cell)})" if is_partial else cell.row


def _title(records: Records, folder: Path) -> str:
    """Return what the page is called: after the data, if it is one set, or after the folder."""
    if records.sweeps and not records.loose and all(map(is_synthetic, records.sweeps)):
        return "Results on synthetic images"
    specs = [sweep.base for sweep in records.sweeps if sweep.base is not None] + [
        run.spec for run in records.runs.values()
    ]
    names = {
        str(data.get("path") or data.get("name")) for spec in specs if isinstance(data := spec.get("data"), Mapping)
    }
    return f"Results on {Path(names.pop()).name}" if len(names) == 1 else f"Results in {folder.resolve().name}"


def _figures_of(section: Section) -> list[Figure]:
    return [*section.figures, *(figure for _, figure in section.training)]


def _put_together(records: Records) -> tuple[list[Section], dict[str, str]]:
    sections: list[Section] = []
    tables: dict[str, str] = {}
    slugs: set[str] = {"problems", "main"}
    shown: set[str | None] = set()
    for sweep in map(_comparable, sorted(records.sweeps, key=_place_on_page)):
        section = _sweep_section(sweep, _slug(sweep.name, slugs), records.runs)
        ran = {run.id for cell in sweep.cells for run in cell.runs if run.status != MISSING}
        if sweep.axis is not None and ran and ran <= shown:  # nothing was varied yet but what another section varies
            section = replace(section, is_folded=True, verdict="", state=f"{section.state}, all of them shown above")
        shown |= ran
        sections.append(section)
        tables[section.slug] = results_csv(sweep)
    if records.loose:
        section = _loose_section(records.loose, _slug("runs", slugs), is_folded=bool(records.sweeps))
        sections.append(section)
        if section.results is not None:
            tables[section.slug] = table_csv(section.results)
    tables |= {f"{each.slug}-runs": table_csv(each.every_run) for each in sections if each.every_run is not None}
    for costs in records.costs:
        for section in _cost_sections(costs, slugs):
            sections.append(section)
            if section.results is not None:
                tables[section.slug] = table_csv(section.results)
    return sections, tables


def _comparable(sweep: SweepRecord) -> SweepRecord:
    """Return a sweep without the paper's numbers if its images were made up: they do not belong together."""
    if not is_synthetic(sweep):
        return sweep
    return replace(sweep, cells=tuple(replace(cell, published=None) for cell in sweep.cells))


def _place_on_page(sweep: SweepRecord) -> tuple[bool, bool, str]:
    # What the reader compared comes first. What the paper did follows in its order: such a sweep begins by saying in
    # which section. What nobody has run comes last.
    return (False, False, "") if sweep.kind == "comparison" else (True, _is_empty(sweep), sweep.about)


def _is_empty(sweep: SweepRecord) -> bool:
    return all(map(is_not_run, sweep.cells))


def _sweep_section(sweep: SweepRecord, slug: str, runs: Mapping[str, RunRecord]) -> Section:
    own = [run for cell in sweep.cells for run in cell.runs]
    metric = next((runs[run.id].metric for run in own if run.id is not None and run.id in runs), "accuracy")
    # Of an experiment the reader runs what he wants to see; the rest is not missing.
    state = _state(own if sweep.kind == "comparison" else [run for run in own if run.status != MISSING])
    # A figure over an axis has to know all its columns, to tell which share a plot.
    drawn = sweep if sweep.axis else replace(sweep, cells=tuple(c for _, cells in parts_run(sweep) for c in cells))
    facts = [
        ("Comparison" if sweep.kind == "comparison" else "Experiment", sweep.name),
        ("Runs", state),
        ("Scale", sweep.scale),
        ("Reduced", sweep.reduced),
    ]
    series = distinct(cell.row for cell in drawn.cells)
    training = [
        (setting.title, run_figure(setting, series, f"{sweep.title}, training", f"{slug}-training-{number}"))
        for number, setting in enumerate(settings_of(drawn, runs), start=1)
    ]
    lost = sum(run.status == "done" and run.id not in runs for run in own)
    remarks = [f"No training curves of {lost} finished runs: their record.json was not found."] if lost else []
    is_empty = _is_empty(sweep)
    not_run = sum(len(cells) for _, cells in parts_not_run(sweep))
    return Section(
        slug=slug,
        title=sweep.title,
        name=sweep.name,
        about="" if is_advice(sweep) else sweep.about,
        state=state,
        facts=tuple((name, text) for name, text in facts if text),
        results=None if is_empty else results_table(sweep),
        planned=planned_table(sweep) if not_run else None,
        planned_state=f"{not_run} of {len(sweep.cells)}",
        every_run=None if is_empty else runs_table(sweep),
        is_folded=is_empty,
        verdict=verdict_of(sweep),
        figures=tuple(filter(_compares, result_figures(drawn, slug, metric))) if not is_empty else (),
        training=tuple((name, figure) for name, figure in training if figure.panels),
        remarks=tuple(remarks),
    )


def _compares(figure: Figure) -> bool:
    """Whether a figure says more than the line of a table: a dot plot of one method alone does not."""
    plots = [panel for panel in figure.panels if panel.rows]
    return not plots or any(len(plot.rows) > 1 or any(dot.look == "paper" for dot in plot.dots) for plot in plots)


def _loose_section(runs: Iterable[RunRecord], slug: str, *, is_folded: bool) -> Section:
    runs = list(runs)
    series = distinct(run.settings for run in runs)
    names = names_apart([next(run for run in runs if run.settings == settings) for settings in series])
    named = [(names[series.index(run.settings)], run) for run in runs]
    setting = Setting("", tuple((series.index(run.settings), run) for run in runs if run.history))
    figure = run_figure(setting, names, "Training", f"{slug}-training", "Runs") if setting.runs else None
    state = _state(runs)
    return Section(
        slug=slug,
        title="Other runs" if is_folded else "Runs",
        about="",
        state=state,
        facts=(("Runs", state),),
        results=loose_table(named),
        every_run=None,
        figures=(),
        training=(("", figure),) if figure is not None and figure.panels else (),
        is_folded=is_folded,
        verdict="" if is_folded else verdict_of_runs(named),
    )


def _state(runs: Iterable[CellRun | RunRecord]) -> str:
    return ", ".join(f"{count} {status}" for status, count in count_statuses(runs).items()) or "not run"


def _cost_sections(costs: Costs, slugs: set[str]) -> list[Section]:
    parts = (
        ("What an update costs", "cost", updates_table(costs), f"{len(costs.updates)} settings"),
        ("Memory of an update", "memory", memory_table(costs), f"{len(costs.memory)} settings"),
    )
    sections: list[Section] = []
    for title, name, table, state in parts:
        if not any(rows for _, rows in table.parts):
            continue  # it was interrupted before
        slug = _slug(name, slugs)
        figure = growth_figure(costs, f"{slug}-growth") if name == "cost" else None
        figures = () if figure is None else (figure,)
        facts = (("Measured by", "python -m benchmarks.cost"), ("On", str(costs.machine)))
        sections.append(Section(slug, title, "", state, facts, table, None, figures, ()))
    return sections


def _count_runs(records: Records) -> dict[str, int]:
    """Count every run once, by its best standing: sweeps share runs, and one may lack what another has made.

    What is missing counts in the reader's own comparisons only: of an experiment, he runs what he wants to see.
    """
    best: dict[object, str] = {}
    for sweep in records.sweeps:
        for cell in sweep.cells:
            for run in cell.runs:
                if run.status == MISSING and sweep.kind != "comparison":
                    continue
                key = object() if run.id is None else run.id
                best[key] = min(best.get(key, MISSING), run.status, key=_BEST_FIRST.index)
    best |= {run.id: run.status for run in records.loose}
    counted = Counter(best.values())
    return {status: counted[status] for status in _BEST_FIRST if counted[status]}


def _slug(name: str, taken: set[str]) -> str:
    """Return a name that is safe in addresses and on disks, and used once."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "sweep"
    slug, number = plain, 1
    while slug in taken:
        number += 1
        slug = f"{plain}-{number}"
    taken.add(slug)
    return slug
