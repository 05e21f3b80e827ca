"""The tables and pictures of results in the documents, from the committed records: ``make results``.

A table stands between ``<!-- name -->`` and ``<!-- /name -->``. Nobody edits it by hand, and a test compares it with
the records, so that no figure can drift.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import noisy_labels, recommendations
from benchmarks.label_issues import measuring as label_issues
from deepbilevel_lab.records import SweepRecord, read_file
from deepbilevel_lab.replacement import write_text

_ROOT = Path(__file__).parents[1]
PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
_DEMO: Mapping[str, str] = {
    "sgd": "SGD",
    "uniform": "uniform weights over the same groups (control)",
    "bilevel": "bilevel, the paper's rule",
    "cross-validated": "cross-validated gradient, ours",
    "elr": "early-learning regularisation (Liu et al. 2020)",
}


def demo() -> str:
    """Return what `make demo` showed."""
    record = read_file(SweepRecord, _ROOT / "results" / "demo" / "sweep-demo.json")
    lines = ["| | train, noisy labels | test, last epoch | test, best epoch |", "|---|---|---|---|"]
    for cell in record.cells:
        figures = [cell.summary[name] for name in ("train", "test", "best")]
        entries = [f"{each.mean:.1f} ± {each.spread:.1f}" for each in figures if each is not None]
        lines.append(f"| {_DEMO[cell.row]} | {' | '.join(entries)} |")
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "demo": demo,
    "noisy-labels": noisy_labels.tables,
    "label-issues": label_issues.tables,
    "recommendations": recommendations.table,
}


def filled(text: str) -> str:
    """Return a page with its tables as the records have them."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{TABLES[found[1]]()}\n<!-- /{found[1]} -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", table, text, flags=re.DOTALL)


def main() -> None:
    """Fill all pages and draw the pictures."""
    for page in PAGES:
        text = page.read_text()
        if filled(text) != text:
            write_text(page, filled(text))
            print(page.relative_to(_ROOT))
    noisy_labels.draw()


if __name__ == "__main__":
    main()
