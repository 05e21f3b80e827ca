"""A run that is killed at any moment, any number of times, ends bit for bit as one that was left alone."""

import os
import random
import shutil
import signal
import subprocess
import sys

import pytest

from tests.data.layouts import write_jpeg
from tests.training.commands import DIGITS, Command, only_folder, outcome, run, run_to_the_end
from tests.training.test_packing import same

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")

SAVING_ALWAYS = ("--save-seconds", 0)
RUNS = {
    "bilevel": (),
    "sgd with Adam": ("--method", "sgd", "--set", "optimizer=Adam", "--set", "optimizer.lr=0.001"),
    "bilevel with everything": (
        *("--set", "shared_dropout=true", "--set", "method.per_layer=true", "--set", "group.holdout=0.2"),
        *("--set", "evaluate_every=2", "--set", "schedule=linear"),
    ),
}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Return the outcome of a run that nobody disturbs, and that saves only after epochs."""
    found = {}

    def outcome_of(*arguments):
        if arguments not in found:
            found[arguments] = outcome(run_to_the_end(*arguments, out=tmp_path_factory.mktemp("unbroken")))
        return found[arguments]

    return outcome_of


@pytest.mark.slow  # so are the other loops of kills; one of them, and one kill of the command itself, are not
@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_kills_at_random_moments_change_nothing(tmp_path, unbroken, settings):
    command, moments = (*DIGITS, "--epochs", 6, *settings), random.Random(f"moments {settings}")
    delays, code = [], None
    while code != 0:
        process = Command(*command, *SAVING_ALWAYS, out=tmp_path)
        if len(delays) % 4:  # now and then it dies before it has begun
            process.wait_for("started", "done")  # done: the last kill came after all was written
        # Short at first, or a fast machine is through before it has been killed often enough; then longer and longer:
        # on a busy one an evaluation, which begins anew, may take more than the first delays.
        delays.append(moments.uniform(0, 0.1 + 0.03 * len(delays)))
        code = process.killed_after(delays[-1])
    assert len(delays) > 3
    assert same(outcome(only_folder(tmp_path)), unbroken(*command)), f"killed after {delays}"


def test_kills_before_every_kind_of_file_operation_change_nothing(tmp_path, unbroken):
    command, numbers = (*DIGITS, "--epochs", 2), random.Random(0)
    points, code = [], -signal.SIGKILL
    while code == -signal.SIGKILL:
        # At first so early that a process gets nowhere; start and evaluation together take less than a hundred.
        points.append(2 * len(points) + 1 if len(points) < 8 else numbers.randrange(15, 150))
        code, _, errors = run(*command, *SAVING_ALWAYS, out=tmp_path, dies_at=points[-1])
    assert code == 0, errors
    assert same(outcome(only_folder(tmp_path)), unbroken(*command)), f"killed at {points}"
    assert list(tmp_path.rglob("*.tmp")) == [], "half-written files were left behind"


@pytest.mark.slow
def test_kills_at_every_moment_of_finishing_change_nothing(tmp_path, unbroken):
    command = (*DIGITS, "--epochs", 1)
    assert Command(*command, *SAVING_ALWAYS, out=tmp_path / "out", dies_after="epoch").end()[0] == -signal.SIGKILL
    point, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        point += 1
        code, _, errors = run(*command, *SAVING_ALWAYS, out=tmp_path / "out", dies_at=point)
    assert code == 0, errors
    assert point > 15
    assert same(outcome(only_folder(tmp_path / "out")), unbroken(*command))


def test_a_finished_run_is_left_as_it_is(tmp_path):
    def seen():
        return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*")}

    run_to_the_end(*DIGITS, "--epochs", 1, out=tmp_path)
    before = seen()
    code, output, errors = run(*DIGITS, "--epochs", 1, out=tmp_path)
    assert (code, errors) == (0, "")
    assert "is finished; nothing to do" in output
    assert seen() == before


def test_starting_anew_moves_the_old_run_aside(tmp_path):
    folder = run_to_the_end(*DIGITS, "--epochs", 1, out=tmp_path)
    (folder / "mine").write_text("kept")
    first = outcome(folder)
    for number in (1, 2):
        code, output, errors = run(*DIGITS, "--epochs", 1, "--no-resume", out=tmp_path)
        assert code == 0, errors
        assert f"what was there is now in {folder}.old-{number}" in output
    old = folder.with_name(f"{folder.name}.old-1")
    assert (old / "mine").read_text() == "kept"
    assert same(outcome(old), first)
    assert same(outcome(folder), first)
    assert not (folder / "mine").exists()


@pytest.fixture
def images(tmp_path):
    """Write photographs of two brightnesses, larger than what is cut out of them."""
    for number in range(60):
        name = ("dark", "bright")[number % 2]
        write_jpeg(tmp_path / "images" / name / f"{number}.jpg", (48, 40), brightness=60 + 100 * (number % 2))
    return tmp_path / "images"


@pytest.mark.slow
def test_image_files_are_seen_alike_by_any_number_of_workers_and_after_kills(tmp_path, images):
    settings = ("--noise", "uniform:0.2", "--epochs", 2, "--threads", 1, "--limit", 40, "--json")
    group = ("--set", "group.num_batches=2", "--set", "group.batch_size=8", "--set", "data.view=random-area")
    command = ("--data", images, "--network", "cifarnet", *settings, *group, *SAVING_ALWAYS)
    alone = run_to_the_end(*command, out=tmp_path / "alone")
    run_to_the_end(*command, "--workers", 2, out=tmp_path / "workers")
    moments = random.Random(1)
    delays = [moments.uniform(0.2, 1.0) for _ in range(4)]
    for number, delay in enumerate(delays):  # in turns with and without workers
        Command(*command, "--workers", 2 * (number % 2), out=tmp_path / "killed").killed_after(delay)
    run_to_the_end(*command, "--workers", 2, out=tmp_path / "killed")
    for other in ("workers", "killed"):
        assert same(outcome(only_folder(tmp_path / other)), outcome(alone)), f"{other}: killed after {delays}"


def test_the_command_itself_killed_while_it_reports_goes_on(tmp_path, unbroken):
    command = [*DIGITS, "--epochs", 2]
    line = [sys.executable, "-m", "deepbilevel", "train", *map(str, [*command, *SAVING_ALWAYS]), "--out", tmp_path]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        while '"epoch": 1' not in process.stdout.readline():
            assert process.poll() is None
        process.kill()
    result = subprocess.run(line, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "resuming at epoch 2" in result.stdout
    assert same(outcome(only_folder(tmp_path)), unbroken(*command))
    shutil.rmtree(tmp_path)
