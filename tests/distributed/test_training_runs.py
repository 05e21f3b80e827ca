"""A run in several processes leaves one folder, can be stopped by any of them, and goes on in any number of them."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from deepbilevel.distributed.ranks import find_ranks
from deepbilevel.rules.catalog import RULES
from deepbilevel_lab.losses import LOSSES
from deepbilevel_lab.processes import find_processes
from deepbilevel_lab.processes.one_process import FailedElsewhereError
from deepbilevel_lab.records import to_json
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.training import DivergedError, Interrupted, Listener, RunFolder, train
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.checkpoints import Checkpoints
from deepbilevel_lab.training.folder import FolderInUseError
from tests.distributed.cases import place
from tests.distributed.test_equality import same
from tests.distributed.test_training_equality import RUNS
from tests.training.commands import outcome
from tests.training.test_combinations import digits
from tests.training.test_packing import same as identical

SMALL = {"group__num_batches": 5, "group__batch_size": 4, "data__limit": 100, "data__test_limit": 40, "epochs": 2}
SETTINGS = {**SMALL, "shared_dropout": True, "threads": 4, "optimizer__lr": 0.02}


class Ears(Listener):
    """Keeps what it is told."""

    def __init__(self):
        self.heard = []

    def message(self, text):
        self.heard.append(text)

    def epoch(self, row):
        self.heard.append(row.epoch)


def run(out, *, stop_at=None, stopped=1, **settings):
    """Train in ``out``; a process may get a signal after some step. Returns what was heard, and what came of it."""
    spec, ears, steps = digits(**{**SETTINGS, **settings}), Ears(), 0

    def count(*_):
        nonlocal steps
        steps += 1
        if steps == stop_at and place()[0] == stopped:
            signal.raise_signal(signal.SIGTERM)

    hook = register_optimizer_step_post_hook(count)
    try:
        record = train(spec, out=Path(out), data_dir=Path(), listener=ears)
        return ears.heard, {**to_json(record), "threads": torch.get_num_threads()}
    except (Interrupted, DivergedError, FailedElsewhereError, FolderInUseError) as error:
        return ears.heard, f"{type(error).__name__}: {error}"
    finally:
        hook.remove()


def folder(out, **settings):
    return RunFolder.of(digits(**{**SETTINGS, **settings}), out).path


def numbers(path):
    """Return what a run in another number of processes has too, to rounding."""
    found = outcome(path)
    state = found["checkpoint"][1]
    rows = [{name: torch.tensor(value) for name, value in row.items()} for row in found["results"]["history"]]
    return {
        "model": state["model"],
        "optimizer": state["optimizer"]["state"],
        "history": rows,
        "random": state["random"],
    }


def close(one, other):
    same(one, other, rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    run(out)
    return folder(out)


@pytest.fixture(scope="module")
def unbroken(two, tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    return folder(out), two.run(run, out=out)


def test_only_the_first_process_writes_and_is_heard(unbroken, alone):
    path, answers = unbroken
    assert [heard for heard, _ in answers] == [[1, 2], []]
    (_, first), (_, second) = answers
    assert first == second
    assert first["processes"] == 2
    assert json.loads((path / "record.json").read_text())["processes"] == 2
    assert json.loads((alone / "record.json").read_text())["processes"] == 1
    assert first["threads"] == 4  # nobody said that they share a machine
    assert {each.relative_to(path) for each in path.rglob("*") if "events" not in each.name} == {
        each.relative_to(alone) for each in alone.rglob("*") if "events" not in each.name
    }
    assert path.name == alone.name  # the id does not depend on the number of processes
    close(numbers(path), numbers(alone))


def test_a_signal_to_one_process_stops_all_at_the_same_step(two, unbroken, tmp_path):
    answers = two.run(run, out=tmp_path, stop_at=3)
    said = "Interrupted: stopped at epoch 1, saved; rerun the same command to resume"
    assert [answer for _, answer in answers] == [said, said]
    path = folder(tmp_path)
    assert json.loads((path / "record.json").read_text())["status"] == "interrupted"
    assert [each.name for each in Checkpoints(path / "checkpoints").paths()] == ["step-00000003.safetensors"]
    heard, _ = two.run(run, out=tmp_path)[0]
    assert heard[0] == "resuming at epoch 1, step 3"
    assert identical(outcome(path), outcome(unbroken[0]))


def test_a_run_goes_on_in_any_number_of_processes(one, two, three, alone, tmp_path):
    two.run(run, out=tmp_path / "begun", stop_at=7)
    for number, processes in enumerate((one, three), start=1):
        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "begun", out)
        heard, _ = processes.run(run, out=out)[0]
        assert heard[0] == "resuming at epoch 2, step 7"
        close(numbers(folder(out)), numbers(alone))


def test_a_finished_run_is_finished_for_all(two, unbroken):
    path, before = unbroken
    answers = two.run(run, out=path.parent)
    assert [heard for heard, _ in answers] == [[f"{path} is finished; nothing to do"], []]
    for (_, record), (_, first) in zip(answers, before, strict=True):
        assert record["history"] == first["history"]


def test_a_folder_in_use_is_told_once(two, tmp_path):
    with RunFolder(folder(tmp_path)).locked():
        (_, first), (_, second) = two.run(run, out=tmp_path)
    assert first.startswith("FolderInUseError")
    assert second.startswith("FailedElsewhereError")


def test_a_run_that_diverges_is_told_once(two, tmp_path):
    (_, first), (_, second) = two.run(run, out=tmp_path, optimizer__lr=1e30)
    assert first.startswith("DivergedError")
    assert second == "FailedElsewhereError: the first process says what went wrong"


def build_fails(failing):
    """Return what each process raises where some cannot build the run."""
    processes = find_processes()
    try:
        with processes.succeeding():
            if place()[0] in failing:
                raise ValueError(f"no data in process {place()[0]}")
    except (ValueError, FailedElsewhereError) as error:
        return f"{type(error).__name__}: {error}"
    return "went on"


@pytest.mark.parametrize(("failing", "teller"), [((1,), 1), ((1, 2), 1), ((0, 1, 2), 0)])
def test_nobody_goes_on_where_one_has_failed(three, failing, teller):
    expected = [f"FailedElsewhereError: process {teller} has failed, and says why"] * 3
    expected[teller] = f"ValueError: no data in process {teller}"
    assert three.run(build_fails, failing=failing) == expected
    assert three.run(build_fails, failing=()) == ["went on"] * 3


def explained(error, where):
    """Return what a process raises where something goes wrong that has nothing to do with the others."""
    processes = find_processes()

    def work():
        raise error

    try:
        with processes.explaining():
            if where == "here":
                work()
            elif where == "in the first":
                processes.ask_first(work)
            else:
                with processes.succeeding():
                    work()
    except (RuntimeError, FailedElsewhereError) as raised:
        return f"{type(raised).__name__}: {raised}"


@pytest.mark.parametrize("where", ["here", "in the first", "in all"])
def test_errors_of_ones_own_are_not_taken_for_lost_processes(two, where):
    first, second = two.run(explained, error=RuntimeError("my own"), where=where)
    assert first == "RuntimeError: my own"
    assert second == "RuntimeError: my own" if where == "here" else second.startswith("FailedElsewhereError")


def broken_exchange():
    """Return what a process raises where torch fails in an exchange of a step; here by numbers that gloo cannot add."""
    try:
        with find_processes().explaining():
            find_ranks().add_up([torch.ones(1, dtype=torch.int16)])
    except RuntimeError as raised:
        return f"{type(raised).__name__}: {raised}"


def test_errors_of_a_steps_exchange_are_taken_for_lost_processes(two):
    for said in two.run(broken_exchange):
        assert said.startswith("LostProcessError: another process of this run is gone")


def threads_beside(local_size):
    environment = {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": str(local_size)}
    os.environ.update(environment)
    try:
        build(digits(**SETTINGS), Path())
        return torch.get_num_threads()
    finally:
        torch.set_num_threads(1)
        for name in environment:
            del os.environ[name]


@pytest.mark.parametrize(("local_size", "expected"), [(1, 4), (2, 2), (3, 1), (5, 1)])
def test_the_threads_of_a_run_are_divided_among_the_processes_of_a_machine(two, local_size, expected):
    assert two.run(threads_beside, local_size=local_size) == [expected] * 2


def refusal(**settings):
    with pytest.raises(SpecError) as error:
        train(
            digits(**{**SETTINGS, "shared_dropout": False, **settings}), out=Path("nothing-is-written"), data_dir=Path()
        )
    return str(error.value)


REFUSED = {
    "group.num_batches 2 is too small for 3 processes": {"group__num_batches": 2},
    "method sgd takes the group as one batch": {"method": "sgd"},
    "method agreement-filter compares": {"method": "agreement-filter"},
    "method exact compares": {"method": "exact"},
    "method k-fold compares": {"method": "k-fold"},
    "passes 'joined' runs several": {"method": "cross-validated", "passes": "joined"},
    "loss early-learning remembers each image": {"loss": "early-learning"},
    "loss self-paced remembers the losses": {"loss": "self-paced"},
    "loss noise-layer with loss.linear": {"loss": '{"kind": "noise-layer", "linear": true}'},
}


@pytest.mark.parametrize(("reason", "settings"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_spread_is_refused_with_a_remedy(three, reason, settings):
    said = three.run(refusal, **settings)
    assert said == [said[0]] * 3
    assert said[0].startswith(reason)
    assert "; take " in said[0] or "; start " in said[0]
    assert not Path("nothing-is-written").exists()


def test_every_method_and_loss_that_remembers_is_refused_or_compared():
    compared = {run.get("loss") for run in RUNS.values()} | {"backward-correction"}  # the same memory as forward
    refused = {"early-learning", "self-paced", "co-teaching", "auxiliary-images"}  # the last two need sgd
    assert {kind for kind, spec in LOSSES.items() if hasattr(spec, "why_not_spread")} == (compared | refused) - {None}
    methods = {run.get("method", "bilevel") for run in RUNS.values()}
    assert set(RULES) == methods | {"sgd", "agreement-filter", "exact", "k-fold"}
