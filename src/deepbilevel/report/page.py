"""The page: sections, tables, figures and their controls as HTML, in one file that needs no other.

This module knows HTML. Everything that came from a record passes through ``escape``; the page forbids itself, by its
content security policy, every script but its own and every request.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from string import Template

from deepbilevel import __version__
from deepbilevel.report.drawing import read_file
from deepbilevel.report.figures import Figure
from deepbilevel.report.html_figures import show_figures
from deepbilevel.report.html_tables import show_files, show_table
from deepbilevel.report.looks import DARK, LIGHT, variables
from deepbilevel.report.records import Problem
from deepbilevel.report.summaries import MISSING
from deepbilevel.report.tables import Table

TITLE = "Deep bilevel learning: results"


@dataclass(frozen=True)
class Section:
    """A part of the page: a sweep, the runs that belong to none, or a benchmark.

    Attributes:
        facts: names and texts, told at the top.
        state: how its runs stand, in a few words.
        name: what its sweep is called; titles may repeat.
        training: figures of which the reader looks at one at a time, with the name of each.
        remarks: what is not to be seen, and why.
        is_empty: there is no number in its results, so the table is folded.
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
    is_empty: bool = False


def make_page(
    sections: Sequence[Section],
    num_runs: Mapping[str, int],
    problems: Sequence[Problem],
    files: Mapping[str, Sequence[str]],
) -> str:
    """Return the page.

    Args:
        num_runs: how many different runs there are, by how they stand.
        files: the addresses at which a figure or table also lies, by its slug.
    """
    script = read_file("page.js")
    parts = ([_problems(problems)] if problems else []) + [_section(section, files) for section in sections]
    links = [(each.slug, each.title, "; ".join(filter(None, (each.name, each.state)))) for each in sections]
    if problems:
        links.insert(0, ("problems", "Files that could not be read", str(len(problems))))
    return Template(read_file("page.html")).substitute(
        title=escape(TITLE),
        script_hash="sha256-" + b64encode(sha256(f"\n{script}".encode()).digest()).decode(),
        style=_style(),
        summary=_summary(sections, num_runs, problems),
        contents="\n".join(
            f'<li><a href="#{slug}">{escape(title)}</a> <span class="state">({escape(state)})</span></li>'
            for slug, title, state in links
        ),
        sections="\n".join(parts),
        footer=f"Made by deepbilevel {escape(__version__)} from records alone.",
        script=script,
    )


def _style() -> str:
    light, dark = variables(LIGHT), variables(DARK)
    return "\n".join(
        (
            f":root {{ color-scheme: light; {light} }}",
            f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {dark} }} }}",
            f":root[data-theme=light] {{ color-scheme: light; {light} }}",
            f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}",
            f"@media print {{ :root:root:root {{ color-scheme: light; {light} }} }}",
            read_file("page.css"),
            read_file("figures.css"),
        )
    )


def _summary(sections: Sequence[Section], num_runs: Mapping[str, int], problems: Sequence[Problem]) -> str:
    if not sections:
        return "There are no records here yet."
    made = {status: count for status, count in num_runs.items() if status != MISSING}
    total = sum(made.values())
    told = f"{total} run{'s were' if total != 1 else ' was'} made"
    if made.keys() - {"done"}:
        told += f" ({', '.join(f'{count} {status}' for status, count in made.items())})"
    if MISSING in num_runs:
        missing = num_runs[MISSING]
        told += f"; {missing} planned {'ones are' if missing != 1 else 'one is'} missing"
    told += "."
    if problems:
        count = len(problems)
        told += f' <a href="#problems">{count} file{"s" if count != 1 else ""} could not be read.</a>'
    return told


def _problems(problems: Iterable[Problem]) -> str:
    items = "".join(f"<li><code>{escape(p.path)}</code>: {escape(p.why)}</li>" for p in problems)
    return f'<section id="problems" class="problems"><h2>Files that could not be read</h2><ul>{items}</ul></section>'


def _section(section: Section, files: Mapping[str, Sequence[str]]) -> str:
    slug = section.slug
    parts = [f'<section id="{slug}" aria-labelledby="{slug}-title"><h2 id="{slug}-title">{escape(section.title)}</h2>']
    if section.about:
        parts.append(f'<p class="about">{escape(section.about)}</p>')
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in section.facts)
    parts.append(f'<dl class="facts">{facts}</dl>')
    if section.results is not None:
        table = show_table(section.results, slug, f"Results: {section.title}") + show_files(files.get(slug, ()))
        folded = f"<details><summary>What is planned: {escape(section.state)}</summary>{table}</details>"
        parts.append(f"<h3>Results</h3>{folded if section.is_empty else table}")
    parts += [show_figures((("", figure),), figure.slug, files) for figure in section.figures]
    if section.training:
        parts.append(f"<h3>During training</h3>{show_figures(section.training, f'{slug}-training', files)}")
    parts += [f'<p class="about">{escape(remark)}</p>' for remark in section.remarks]
    if section.every_run is not None:
        table = show_table(section.every_run, f"{slug}-runs", f"Every run: {section.title}")
        listed = show_files(files.get(f"{slug}-runs", ()))
        parts.append(f"<details><summary>Every run</summary>{table}{listed}</details>")
    return "\n".join((*parts, "</section>"))
