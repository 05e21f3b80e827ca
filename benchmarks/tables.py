"""The tables and pictures of results in the documents, from the committed records: ``make results``.

A table stands between ``<!-- name -->`` and ``<!-- /name -->``. Nobody edits it by hand, and a test compares it with
the records, so that no figure can drift.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import (
    cost_tables,
    memorisation,
    noisy_labels,
    overview,
    paper_size,
    recommendations,
    record_tables,
    rule_variants,
    throughput,
)
from benchmarks.label_issues import measuring as label_issues
from deepbilevel_lab.replacement import write_text

_ROOT = Path(__file__).parents[1]
PAGES = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
TABLES: Mapping[str, Callable[[], str]] = {
    "demo": record_tables.demo,
    "overview": overview.table,
    "noisy-labels": noisy_labels.tables,
    "rule-variants": rule_variants.table,
    "cifar10-methods": record_tables.cifar10_methods,
    "table1": record_tables.table1,
    "table1-controls": record_tables.table1_controls,
    "noise-curve": record_tables.noise_curve,
    "comparison-40": record_tables.comparison,
    "reproduced": record_tables.reproduced,
    "paper-size": paper_size.table,
    "inception": record_tables.inception,
    "memorisation": memorisation.table,
    "label-issues": label_issues.tables,
    "recommendations": recommendations.table,
    "tumours": record_tables.tumours,
    "adam": record_tables.adam,
    "cost-summary": cost_tables.summary,
    "cost": cost_tables.updates,
    "cost-own-rule": cost_tables.own_rule,
    "cost-variants": cost_tables.variants,
    "cost-memory": cost_tables.memory,
    "counted-work": cost_tables.counted,
    "throughput": throughput.table,
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
    record_tables.draw_curves()
    record_tables.draw_noise_curve()
    record_tables.draw_cost_growth()
    noisy_labels.draw()
    paper_size.draw()


if __name__ == "__main__":
    main()
