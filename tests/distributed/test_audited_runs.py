"""A run that keeps what it sees of its labels, shared by two processes: one audit of all visits, stopped or not."""

import os
import signal

import numpy as np
import pytest

from deepbilevel_lab.training.auditing import load_audit
from tests.cli.trained import run_in_process
from tests.distributed.test_training_commands import SMALL, Ranks
from tests.training.commands import only_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")

AUDITED = (*SMALL, "--epochs", 3, "--set", "audit=true", "--set", "network.dropout=0")


def audit_in(out):
    return only_folder(out) / "audit.safetensors"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    out = tmp_path_factory.mktemp("shared")
    codes, _, errors = Ranks(*AUDITED, out=out).end()
    assert (codes, errors) == ([0, 0], ["", ""])
    return audit_in(out)


def test_two_processes_have_seen_what_one_sees(tmp_path, shared):
    done = run_in_process("train", *AUDITED, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    alone, both = (load_audit(path).audit for path in (audit_in(tmp_path), shared))
    assert np.array_equal(both.labels, alone.labels)
    assert np.array_equal(both.visits, alone.visits)
    assert both.visits.sum() == 3 * 10 * 20  # epochs, groups and images of a group
    # Sums over processes are rounded in another order, so the networks drift apart a little.
    np.testing.assert_allclose(both.pred_probs(), alone.pred_probs(), atol=1e-3)
    assert np.array_equal(np.isnan(both.curves()), np.isnan(alone.curves()))
    np.testing.assert_allclose(both.curves(), alone.curves(), atol=1e-2)


def test_a_run_that_was_stopped_ends_with_the_same_audit(tmp_path, shared):
    ranks = Ranks(*AUDITED, out=tmp_path, waits_after="epoch")  # the second waits for the first
    ranks.commands[0].wait_for("waiting")
    ranks.commands[1].signal(signal.SIGTERM)
    assert ranks.end()[0] == [130, 130]
    assert Ranks(*AUDITED, out=tmp_path).end()[0] == [0, 0]
    assert audit_in(tmp_path).read_bytes() == shared.read_bytes()


def test_the_command_reports_once(tmp_path):
    uniform = ("--method", "uniform", "--set", "method.use_validation=true")
    groups = ("--set", "group.num_batches=5", "--set", "group.batch_size=4", "--threads", 1, "--quiet")
    ranks = Ranks("digits", "--limit", 100, "--epochs", 1, *groups, *uniform, out=tmp_path, command="audit")
    codes, outputs, errors = ranks.end()
    assert (codes, errors[1], outputs[1]) == ([0, 0], "", "")
    assert "100 images, 10 classes." in outputs[0]
    assert (tmp_path / "index.html").is_file()
