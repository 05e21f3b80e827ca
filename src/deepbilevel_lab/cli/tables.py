"""Tables and texts on a terminal of any width: columns stand apart if there is room, text folds, nothing is cut off."""

from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from textwrap import fill


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, numbers: Iterable[int] | None = None
) -> None:
    """Print a table.

    Args:
        titles: of the columns.
        rows: of text.
        caption: what stands below.
        numbers: which columns are numbers; all but the first by default.
    """
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*titles, caption=escape(caption), caption_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = True  # a name is there to be copied
    for number in range(1, len(titles)) if numbers is None else numbers:
        table.columns[number].justify = "right"
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    table.padding = (0, 1, 0, 0)
    wanted = console.measure(table, options=console.options.update(width=1_000))  # or it is cut to the terminal's
    if wanted.maximum > console.width:
        table.padding = 0
    console.print(table)


def in_lines(text: str) -> str:
    """Return a text in lines as wide as the terminal, which would break them in the middle of words."""
    return fill(text, get_terminal_size().columns)
