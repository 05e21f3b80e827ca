"""Which cells of a sweep with an axis are drawn together, and what their lines are called.

The paper draws one plot per network, with a line for clean labels and one for noisy labels in it. A sweep has a column
for each: "CifarNet, clean" and "CifarNet, 50 % noise". What columns share before their last comma names the plot.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepbilevel.report.records import Cell, Sweep
from deepbilevel.report.summaries import distinct, parts_of


@dataclass(frozen=True)
class LinePlots:
    """Plots, each with a title and the cells in it; the row of a cell is the name of its line.

    Attributes:
        word: what a line stands for.
    """

    plots: tuple[tuple[str, tuple[Cell, ...]], ...]
    word: str

    @property
    def lines(self) -> list[str]:
        """The names of all lines: one that is in several plots looks the same in all of them."""
        return distinct(cell.row for _, cells in self.plots for cell in cells)


def line_plots(sweep: Sweep) -> LinePlots:
    """Return a plot per column, or per group of columns that differ only after their last comma."""
    parts = parts_of(sweep)
    sizes = Counter(_before_last_comma(column) for column, _ in parts)
    grouped = {start for start, size in sizes.items() if start and size > 1}
    if not grouped:
        return LinePlots(tuple((column, tuple(cells)) for column, cells in parts), "method")
    one_method = len({cell.row for cell in sweep.cells}) == 1
    # By title and whether it names a group: "CifarNet" beside "CifarNet, clean" stays a plot of its own.
    plots: dict[tuple[str, bool], list[Cell]] = {}
    for column, cells in parts:
        start = _before_last_comma(column)
        if start in grouped:
            plots.setdefault((start, True), []).extend(_named(cells, column[len(start) + 2 :], one_method))
        else:
            plots.setdefault((column, False), []).extend(cells)
    word = "setting" if one_method else "method and setting"
    return LinePlots(tuple((title, tuple(cells)) for (title, _), cells in plots.items()), word)


def _before_last_comma(column: str) -> str:
    return column.rpartition(", ")[0]


def _named(cells: Sequence[Cell], end: str, one_method: bool) -> list[Cell]:
    """Name lines by what differs between them."""
    return [replace(cell, row=end if one_method else f"{cell.row}, {end}") for cell in cells]
