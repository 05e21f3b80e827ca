"""Tables in the page, with headers that say what they head, for those who hear the page instead of seeing it."""

from collections.abc import Collection, Sequence
from html import escape

from deepbilevel.report.tables import Column, Row, Table


def show_table(table: Table, slug: str, name: str) -> str:
    """Return a table that scrolls by itself where it is too wide, with its notes."""
    columns = table.columns
    # Where a line is drawn: before each group, and before each column that is in none.
    firsts = {
        i for i, column in enumerate(columns) if not column.group or i == 0 or column.group != columns[i - 1].group
    }
    body: list[str] = []
    for title, rows in table.parts:
        head = ""
        if title:
            span = len(columns) + 1
            head = f'<tr><th scope="rowgroup" colspan="{span}"><span>{escape(title)}</span></th></tr>'
        body.append(f"<tbody>{head}{''.join(_row(row, columns, slug, firsts) for row in rows)}</tbody>")
    notes = "".join(
        f'<li id="{slug}-note-{number}">{escape(note)}</li>' for number, note in enumerate(table.notes, start=1)
    )
    footnotes = f'<ol class="notes" aria-label="Notes on the published numbers">{notes}</ol>' if notes else ""
    whole = f"<caption><span>{escape(table.caption)}</span></caption>{_head(table, firsts)}{''.join(body)}"
    region = f'class="scroller" tabindex="0" role="region" aria-label="{escape(name)}"'
    return f"<div {region}><table>{whole}</table></div>{footnotes}"


def _head(table: Table, firsts: Collection[int]) -> str:
    columns = table.columns
    if not any(column.group for column in columns):
        names = "".join(f'<th scope="col" class="{column.kind}">{escape(column.name)}</th>' for column in columns)
        return f'<thead><tr><th scope="col">{escape(table.corner)}</th>{names}</tr></thead>'
    upper, lower = [f'<th scope="col" rowspan="2">{escape(table.corner)}</th>'], []
    for place, column in enumerate(columns):
        first = ' class="first"' if place in firsts else ""
        if not column.group:
            upper.append(f'<th scope="col" rowspan="2"{first}>{escape(column.name)}</th>')
            continue
        if place in firsts:
            span = sum(other.group == column.group for other in columns)
            upper.append(f'<th scope="colgroup" colspan="{span}"{first}>{escape(column.group)}</th>')
        lower.append(f'<th scope="col"{first}>{_breakable(column.name)}</th>')
    return f"<thead><tr>{''.join(upper)}</tr><tr>{''.join(lower)}</tr></thead>"


def _breakable(name: str) -> str:
    """Let a word be broken that is wider than the numbers below it; browsers know few hyphenations by themselves."""
    return escape(name).replace("difference", "differ&shy;ence")


def _row(row: Row, columns: Sequence[Column], slug: str, firsts: Collection[int]) -> str:
    fields = ""
    for place, (entry, column) in enumerate(zip(row.entries, columns, strict=True)):
        note = ""
        if entry.note is not None:
            note = f' <sup><a href="#{slug}-note-{entry.note}" aria-label="note {entry.note}">{entry.note}</a></sup>'
        looks = " ".join(
            (column.kind, *((entry.look,) if entry.look else ()), *(("first",) if place in firsts else ()))
        )
        text = entry.text if column.kind != "words" else _whole_parts(entry.text)
        fields += f'<td class="{looks}">{escape(text)}{note}</td>'
    return f'<tr><th scope="row">{escape(row.head)}</th>{fields}</tr>'


def _whole_parts(text: str) -> str:
    """Let a text be broken between its parts only, after a semicolon."""
    return text.replace(" ", "\N{NO-BREAK SPACE}").replace(";\N{NO-BREAK SPACE}", "; ")


def show_files(addresses: Sequence[str]) -> str:
    """Return links to the same thing as a file."""
    links = "".join(f'<a href="{escape(a)}">{escape(a.rpartition(".")[2].upper())}</a>' for a in addresses)
    return f'<p class="files">As a file: {links}</p>' if links else ""
