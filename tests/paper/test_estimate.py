"""The cost of runs: visits to the image, and hours from a probe with a clock of our own."""

import json
from dataclasses import replace
from itertools import count

import pytest
import torch

from deepbilevel.rules.average import Sgd
from deepbilevel_lab.training import default_spec
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.loop import TrainingLoop
from deepbilevel_lab.training.spec import GroupSpec
from deepbilevel_paper import find_experiment
from deepbilevel_paper.estimate import Probe, evaluated_images, sample_visits
from deepbilevel_paper.made_data import make_data

SPEC = replace(default_spec("cifar10"), threads=1, device="cpu", group=GroupSpec(2, 4))


def ticking(step=0.25):
    """Return a clock that goes on by so much whenever somebody looks."""
    ticks = count()
    return lambda: step * next(ticks)


@pytest.mark.parametrize("row", range(0, 24, 4))
def test_visits_are_what_a_run_trains_on(row, tmp_path):
    make_data(tmp_path, ["cifar10"])
    spec = replace(find_experiment("table1").cells("smoke")[row].spec, epochs=3)
    parts = build(spec, tmp_path)
    assert sample_visits(spec) == 3 * parts.groups.num_groups * spec.group.size


def test_visits_and_evaluations_of_the_papers_runs():
    cifar, voc = find_experiment("table1").cells()[0].spec, find_experiment("voc2007").cells()[-1].spec
    assert sample_visits(cifar) == 200 * 390 * 128
    assert evaluated_images(cifar) == 200 * 60_000
    assert sample_visits(voc) == 1000 * 78 * 64
    assert evaluated_images(voc) == 20 * (5_011 + 10 * 4_952)
    assert evaluated_images(replace(cifar, evaluate_every=150)) == 2 * 60_000  # and after the last


def test_a_run_is_evaluated_as_often_as_counted(tmp_path):
    make_data(tmp_path, ["cifar10"])
    (cell, *_) = find_experiment("table1").cells("smoke")
    spec = replace(cell.spec, epochs=5, evaluate_every=2)
    loop = TrainingLoop(build(spec, tmp_path))
    for _ in loop.run():
        pass
    times = sum(row.test is not None for row in loop.history)
    assert evaluated_images(spec) == times * (spec.data.limit + spec.data.test_limit)


def test_hours_follow_from_passes_updates_and_evaluations():
    probe = Probe(clock=ticking())
    # Everything takes one tick of this clock: a pass of a mini-batch, an update, an evaluation of 16 images.
    groups, evaluations = sample_visits(SPEC) / 8, evaluated_images(SPEC) / 16
    seconds = 0.25 * (groups * (2 + 1) + evaluations)
    assert probe.seconds(SPEC) == pytest.approx(seconds)
    assert probe.hours([SPEC, SPEC]) == pytest.approx(2 * seconds / 3600)
    whole = replace(SPEC, method=Sgd())  # a group in one pass
    assert probe.seconds(whole) == pytest.approx(0.25 * (groups * (1 + 1) + evaluations))


def test_a_part_of_runs_is_measured_once(tmp_path):
    file = tmp_path / "folder" / "speeds.json"
    probe = Probe(file, clock=ticking())
    first = probe.seconds(SPEC)
    assert [key.split(", ")[-1] for key in json.loads(file.read_text())] == ["pass of 4", "update", "evaluation of 16"]
    probe.clock = ticking(2.0)
    assert probe.seconds(replace(SPEC, seed=3)) == first
    assert Probe(file, clock=ticking(2.0)).seconds(SPEC) == first
    assert Probe(clock=ticking(2.0)).seconds(SPEC) == pytest.approx(8 * first)
    more = probe.seconds(replace(SPEC, group=GroupSpec(4, 4)))  # of the same passes
    assert len(json.loads(file.read_text())) == 3
    assert more > first / 2
    for other in (replace(SPEC, group=GroupSpec(4, 2)), replace(SPEC, method=Sgd())):
        probe.seconds(other)
    assert len(json.loads(file.read_text())) == 5


@pytest.mark.parametrize(("tick", "steps"), [(0.05, 4), (0.2, 2), (2.5, 1)])
def test_a_slow_part_is_timed_once_and_a_short_one_for_half_a_second(tick, steps):
    looks = count()
    Probe(clock=lambda: tick * next(looks)).seconds(SPEC)
    # At the beginning, before and after every step, and from the second on whether it is enough; for three parts.
    assert next(looks) == 3 * (1 + 2 * steps + (steps - 1))


def test_measured_anew_what_was_known_is_measured_once_more_and_the_rest_kept(tmp_path):
    file = tmp_path / "speeds.json"
    first = Probe(file, clock=ticking()).seconds(SPEC)
    file.write_text(json.dumps({**json.loads(file.read_text()), "another machine": 3.0}))
    again = Probe(file, anew=True, clock=ticking(2.0))
    assert again.seconds(SPEC) == pytest.approx(8 * first)
    again.clock = ticking(4.0)
    assert again.seconds(SPEC) == pytest.approx(8 * first)
    assert Probe(file).seconds(SPEC) == pytest.approx(8 * first)
    assert json.loads(file.read_text())["another machine"] == 3.0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"a": "b"}', '{"a": {"training": 1}}'])
def test_a_damaged_file_of_speeds_is_measured_again(content, tmp_path):
    file = tmp_path / "speeds.json"
    file.write_text(content)
    assert Probe(file, clock=ticking()).seconds(SPEC) == Probe(clock=ticking()).seconds(SPEC)
    assert list(json.loads(file.read_text()).values()) == [0.25, 0.25, 0.25]


def test_a_probe_leaves_random_numbers_and_threads_alone():
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    Probe(clock=ticking()).seconds(replace(SPEC, threads=threads + 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
