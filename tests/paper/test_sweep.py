"""Experiments as sweeps: every printed number has a place, every run its seed, and what was reduced is said."""

import pytest

from deepbilevel_lab.records import Axis
from deepbilevel_lab.sweeps.sweep import make_sweep_record
from deepbilevel_lab.sweeps.table import make_table_beside
from deepbilevel_lab.training.other_runs import needs
from deepbilevel_paper import EXPERIMENTS, find_experiment
from deepbilevel_paper.sweep import make_sweep


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_has_a_run_per_seed_and_those_it_needs(name):
    sweep = make_sweep(EXPERIMENTS[name], "smoke", (0, 3), threads=2)
    ids = [trial.id for trial in sweep.trials()]
    for cell in sweep.cells:
        assert [spec.seed for spec in cell.specs] in ([0, 3], [])
        assert all(spec.threads == 2 for spec in cell.specs)
        for spec in cell.specs:
            assert all(ids.index(needed) < ids.index(spec.id) for needed in needs(spec))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_printed_result_stands_in_the_record_whether_there_are_runs_or_not(name):
    experiment = EXPERIMENTS[name]
    record = make_sweep_record(make_sweep(experiment, "paper", (0,)), [])
    printed = {(cell.row, cell.column): cell.published for cell in record.cells if cell.published}
    assert len(printed) == len(experiment.published)
    for each in experiment.published:
        own = printed[each.row, each.column]
        assert (own.train, own.test, own.gap) == (each.train, each.test, each.gap)
    assert {run.status for cell in record.cells for run in cell.runs} == {"missing"}


def test_what_is_doubtful_or_measured_by_others_is_noted():
    record = make_sweep_record(make_sweep(find_experiment("table1"), "paper", (0,)), [])
    notes = {(cell.row, cell.column): cell.published.note for cell in record.cells}
    assert notes.pop(("b) weights per layer", "Inception, 50 % noise")).startswith("doubtful: repeats")
    assert set(notes.values()) == {None}
    record = make_sweep_record(make_sweep(find_experiment("comparison-40"), "paper", (0,)), [])
    [reed] = [cell for cell in record.cells if (cell.row, cell.column) == ("Reed et al.", "CIFAR-10")]
    assert reed.published.note == "network: ResNet; measured by Jiang et al. 2017, arXiv:1712.05055"


def test_what_a_scale_reduces_is_said_and_the_full_one_reduces_nothing():
    table = find_experiment("table1")
    assert make_sweep(table, "paper", (0,)).reduced is None
    compact = make_sweep(table, "compact", (0,))
    assert compact.name == "table1-compact"
    assert "cifarnet: 5,000 of 50,000 training images" in compact.reduced
    assert "inception: 2,500 of 50,000 training images" in compact.reduced


def test_figures_have_an_axis_and_tables_none():
    assert make_sweep(find_experiment("table1"), "paper", (0,)).axis is None
    curve = make_sweep(find_experiment("noise-curves-cifarnet"), "paper", (0,))
    assert curve.axis == Axis("the share of wrong labels", "")
    assert {cell.x for cell in curve.cells} == {number / 10 for number in range(10)}


def test_ours_stands_beside_what_is_printed():
    record = make_sweep_record(make_sweep(find_experiment("clothing1m"), "paper", (0,)), [])
    titles, rows = make_table_beside(record)
    assert titles == ["method", "column", "seeds", "test", "test (paper)", "train"]
    by_place = {(row[0], row[1]): row[2:] for row in rows}
    assert by_place["Bilevel", "noisy labels"][:3] == ["0 of 1, 1 missing", "-", "69.9"]
    assert by_place["Patrini et al.", "noisy labels"][:3] == ["none of ours", "-", "69.8"]
