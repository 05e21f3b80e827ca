"""Benchmarks in a report: what was measured is shown, and what failed is told."""

import csv
import json

import pytest

from deepbilevel_lab.report import make_report
from deepbilevel_lab.report.cost_figures import LIMIT, growth_figure, memory_table, updates_table
from deepbilevel_lab.report.records import read_records
from tests.report.written import write_costs


@pytest.fixture
def costs(tmp_path):
    write_costs(tmp_path)
    (found,) = read_records(tmp_path).costs
    return found


def test_ratios_stand_beside_times_and_a_failure_has_its_reason(costs):
    table = updates_table(costs)
    assert [title for title, _ in table.parts] == ["cifarnet 8x8", "cifarnet 8x16"]
    sgd, bilevel, peer = table.parts[0][1]
    assert [entry.text for entry in sgd.entries[:2]] == ["1000.0", "1.000"]
    assert [entry.text for entry in bilevel.entries] == ["1375.0", "1.375", "1.31 to 1.51", "1.100", "1.04 to 1.21"]
    assert peer.entries[0].text == "failed: ImportError: not installed"
    assert peer.entries[0].look == "absent"


def test_memory_that_was_not_counted_is_a_dash(costs):
    (_, rows), *others = memory_table(costs).parts
    assert not others
    assert {row.head: [entry.text for entry in row.entries] for row in rows} == {
        "SGD, one batch": ["3.50", "4.50"],
        "bilevel": ["\N{EN DASH}", "5.25"],
    }


def test_the_limit_is_drawn_under_what_was_measured(costs):
    figure = growth_figure(costs, "cost-growth")
    assert figure.series == ("SGD, one batch", "bilevel", LIMIT)
    by_number, by_parameters = figure.panels
    assert by_number.x_label.startswith("mini-batches in a group")
    measured = {curve.series: curve for curve in by_number.curves}
    assert measured[1].ys == (312.0, 318.0, 342.0)
    assert measured[2].ys == (102.0, 108.0, 132.0)
    assert by_number.y.low == 0
    assert by_parameters.curves[0].xs == (0.1, 1.4)
    assert "bilevel · cifarnet 8x16 · 318 µs per image (302 to 350)" in {dot.tip for dot in by_number.dots}


def test_a_table_of_several_parts_says_in_csv_which(tmp_path):
    write_costs(tmp_path)
    out = make_report(tmp_path).page.parent
    with (out / "tables" / "cost.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["part"] for row in rows] == ["cifarnet 8x8"] * 3 + ["cifarnet 8x16"] * 3
    assert rows[1]["to accumulation median"] == "1.100"
    assert "A Processor, 1 thread, torch 2.13.0, Python 3.11.2" in (out / "index.html").read_text()


def test_an_interrupted_benchmark_shows_what_it_has(tmp_path):
    write_costs(tmp_path, memory={}, growth=[])
    made = make_report(tmp_path)
    assert (made.num_figures, made.num_tables, made.problems) == (0, 1, ())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 7}, "format is 7"),
        ({"machine": {}}, "processor is None; it must be a text"),
        ({"memory": {"cifarnet 8x8": {"bilevel": None}}}, "bilevel is None; it must be a number"),
        ({"growth": [{"axis": "k", "points": [{"x": "many"}]}]}, "x is 'many'; it must be a number"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, changes, reason):
    path = write_costs(tmp_path, **changes)
    assert json.loads(path.read_text())
    (problem,) = make_report(tmp_path).problems
    assert problem.path == "bench.json"
    assert reason in problem.why
