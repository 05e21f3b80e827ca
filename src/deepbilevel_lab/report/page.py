"""The page: sections, tables, figures and their controls as HTML, in one file that needs no other.

The HTML stands in templates (``page_files/``), which escape everything that is not declared to be markup: our own
style, script and drawings are, and nothing that came from a record. The page forbids itself, by its content security
policy, every script but its own and every request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment
from markupsafe import Markup

from deepbilevel_lab import __version__
from deepbilevel_lab.drawing import svg
from deepbilevel_lab.drawing.figures import Figure
from deepbilevel_lab.drawing.looks import DARK, LIGHT, variables
from deepbilevel_lab.drawing.pages import read_page_file, script_hash, templates_of
from deepbilevel_lab.report.records import Problem
from deepbilevel_lab.report.run_figures import CURVES, WEIGHTS
from deepbilevel_lab.report.summaries import MISSING
from deepbilevel_lab.report.tables import Table

_ROOM = "deepbilevel_lab.report"


@dataclass(frozen=True)
class Section:
    """A part of the page: a sweep, the runs that belong to none, or a benchmark.

    Attributes:
        facts: names and texts, told at the top.
        state: how its runs stand, in a few words.
        name: what its sweep is called; titles may repeat.
        training: figures of which the reader looks at one at a time, with the name of each.
        remarks: what is not to be seen, and why.
        planned: the part of it that nobody has run, which is folded.
        planned_state: how much that is, in a few words.
        is_folded: all of it is folded: nobody has run it, or it stands beside what was asked for.
        verdict: what it shows, in words.
    """

    slug: str
    title: str
    about: str
    state: str
    facts: tuple[tuple[str, str], ...]
    results: Table | None
    every_run: Table | None
    figures: tuple[Figure, ...]
    training: tuple[tuple[str, Figure], ...]
    remarks: tuple[str, ...] = ()
    name: str = ""
    planned: Table | None = None
    planned_state: str = ""
    is_folded: bool = False
    verdict: str = ""

    @property
    def is_drawn(self) -> bool:
        """Whether there is a figure to point at."""
        return any(figure.panels for figure in self.figures) or bool(self.training)


@dataclass(frozen=True)
class Controls:
    """What the reader may choose in figures that are looked at one at a time.

    Attributes:
        series: those that are drawn anywhere, by their numbers.
        shown: those of them that are chosen to begin with.
        keys: looks of dots, each with its explanation.
        panels: the names of what was measured during training, by the keys of the panels.
    """

    word: str
    series: Mapping[int, str]
    shown: frozenset[int]
    keys: tuple[tuple[str, str], ...]
    seeds: Sequence[int]
    panels: Mapping[str, str]


def controls_of(figures: Sequence[Figure]) -> Controls:
    """Return the controls that figures share."""
    panels = [panel for figure in figures for panel in figure.panels]
    first, there, keys = figures[0], {mark.series for panel in panels for mark in panel.marks}, {p.key for p in panels}
    return Controls(
        word=first.series_word,
        series={number: name for number, name in enumerate(first.series) if number in there},
        shown=frozenset[int]().union(*(figure.shown for figure in figures)),
        keys=first.keys,
        seeds=sorted({seed for figure in figures for seed in figure.seeds}),
        panels={key: name for key, name in {**CURVES, WEIGHTS: "Weights of mini-batches"}.items() if key in keys},
    )


def make_page(
    title: str,
    sections: Sequence[Section],
    num_runs: Mapping[str, int],
    problems: Sequence[Problem],
    files: Mapping[str, Sequence[str]],
) -> str:
    """Return the page.

    Args:
        title: names what the records are of.
        sections: in their order.
        num_runs: how many different runs there are, by how they stand.
        problems: files that could not be read.
        files: the addresses at which a figure or table also lies, by its slug.
    """
    script = read_page_file(_ROOM, "page.js")
    return (
        _templates()
        .get_template("page.html", globals={"controls_of": controls_of, "svg": svg})
        .render(
            title=title,
            script=script,
            script_hash=script_hash(script),
            style=read_page_file(_ROOM, "page.css") + "\n" + Markup(svg.figure_style()),
            light=variables(LIGHT),
            dark=variables(DARK),
            summary=_summary(num_runs) if sections else "There are no records here yet.",
            sections=sections,
            problems=problems,
            files=files,
            version=__version__,
        )
    )


@cache
def _templates() -> Environment:
    templates = templates_of(_ROOM)
    templates.filters |= {"breakable": _breakable, "whole_parts": _whole_parts, "whole_numbers": _whole_numbers}
    return templates


def _breakable(name: str) -> str:
    """Let a word be broken that is wider than the numbers below it; browsers know few hyphenations by themselves."""
    return name.replace("difference", "differ\N{SOFT HYPHEN}ence")


def _whole_parts(text: str) -> str:
    """Let a text be broken between its parts only, after a semicolon."""
    return text.replace(" ", "\N{NO-BREAK SPACE}").replace(";\N{NO-BREAK SPACE}", "; ")


def _whole_numbers(text: str) -> str:
    """Let no line end between a number and its unit or spread."""
    for sign in ("%", "\N{PLUS-MINUS SIGN}"):
        text = text.replace(f" {sign}", f"\N{NO-BREAK SPACE}{sign}")
    return text.replace("\N{PLUS-MINUS SIGN} ", "\N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}")


def _summary(num_runs: Mapping[str, int]) -> str:
    made = {status: count for status, count in num_runs.items() if status != MISSING}
    total = sum(made.values())
    told = f"{total} run{'s were' if total != 1 else ' was'} made"
    if made.keys() - {"done"}:
        told += f" ({', '.join(f'{count} {status}' for status, count in made.items())})"
    if MISSING in num_runs:
        missing = num_runs[MISSING]
        told += f"; {missing} more {'are' if missing != 1 else 'is'} planned"
    return f"{told}."
