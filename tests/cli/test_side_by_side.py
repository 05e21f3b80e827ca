"""Many runs in one view: what is seen of each, and of all of them."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from deepbilevel_lab.cli.side_by_side import Lines, Live, Pace, conclude
from deepbilevel_lab.sweeps.trials import News, Outcome, Trial
from tests.cli.trained import make_spec

ROW = {"event": "epoch", "loss": 2.0, "negative_share": 0.1, "test": 50.0, "skipped_batches": 0}
DONE = {"event": "done", "folder": "runs/x", "final": {"epoch": 4, "test": 50.0}, "best": {"epoch": 2, "test": 60.0}}


def make_outcomes(*statuses, epochs=4):
    specs = [make_spec(seed=number, epochs=epochs) for number in range(len(statuses))]
    return [
        Outcome(Trial(f"bilevel[a=1], seed {spec.seed}", spec), status)
        for spec, status in zip(specs, statuses, strict=True)
    ]


@pytest.fixture
def screen():
    """Return a terminal in memory and the bars on it."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    columns = (TextColumn("{task.description}|", markup=False), TextColumn("{task.percentage:.0f}%"))
    with Progress(*columns, TextColumn("{task.fields[now]}"), console=terminal, auto_refresh=False) as bars:
        yield bars


def rows(bars):
    return {task.description: (round(task.percentage), task.fields["now"]) for task in bars.tasks}


def test_a_terminal_has_a_bar_for_all_and_one_for_every_run_under_way(screen):
    outcomes = make_outcomes("done", "waiting", "waiting", "waiting")
    view = Live(screen, 4)
    view.heard(News(outcomes[0].trial, DONE, ending="done"))
    view.changed(outcomes)
    assert rows(screen) == {"all": (25, "1 of 4 runs")}
    outcomes[1].status = "running"
    view.changed(outcomes)
    second = outcomes[1].trial
    assert rows(screen)[second.label] == (0, "starting")
    view.heard(News(second, {"event": "started", "epoch": 0}))
    view.heard(News(second, {"event": "progress", "epoch": 0, "share": 0.5}))
    assert rows(screen)[second.label][0] == 12
    view.heard(News(second, {**ROW, "epoch": 2}))
    assert rows(screen)[second.label][0] == 50
    assert "epoch 2/4  loss 2.000" in rows(screen)[second.label][1]
    assert rows(screen)["all"][0] == 38  # one and a half of four
    outcomes[1].status = "failed"
    view.changed(outcomes)
    view.heard(News(second, ending="failed"))
    assert list(rows(screen)) == ["all"]
    assert "2 of 4 runs" in rows(screen)["all"][1]
    printed = screen.console.file.getvalue()
    assert "bilevel[a=1], seed 0: test 50.00, at best 60.00; runs/x" in printed
    assert "bilevel[a=1], seed 1: failed" in printed


def test_a_log_has_ten_lines_of_a_long_run_and_every_epoch_of_a_short_one(capsys):
    for epochs, expected in ((4, 4), (200, 10)):
        [outcome] = make_outcomes("running", epochs=epochs)
        view = Lines()
        view.changed([outcome])
        for epoch in range(1, epochs + 1):
            view.heard(News(outcome.trial, {**ROW, "epoch": epoch}))
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == expected
        assert f"epoch {epochs}/{epochs}" in lines[-1]


def test_quiet_lines_hold_back_everything_but_complaints(capsys):
    [outcome] = make_outcomes("running")
    view = Lines(quiet=True)
    for event in ({**ROW, "epoch": 1}, {"event": "message", "text": "going on"}, DONE):
        view.heard(News(outcome.trial, event))
    view.heard(News(outcome.trial, {"event": "complaint", "text": "error: no such data"}))
    view.heard(News(outcome.trial, ending="failed"))
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "bilevel[a=1], seed 0: error: no such data\n")


@pytest.mark.parametrize("quiet", [True, False])
def test_a_retry_is_said_when_it_happens_and_at_the_end(quiet, capsys):
    outcomes = make_outcomes("done", "done")
    outcomes[1].retries = 2
    Lines(quiet=quiet).heard(News(outcomes[1].trial, {"event": "retry", "number": 1, "text": "its node was lost"}))
    assert conclude(outcomes) == 0
    assert capsys.readouterr().err.splitlines() == [
        "bilevel[a=1], seed 1: its node was lost",
        "note: 1 of 2 runs lost their process and went on from a checkpoint: bilevel[a=1], seed 1",
    ]


def test_nothing_is_guessed_before_anything_has_moved():
    pace = Pace()
    pace.move("a", 0.5)
    assert pace.left(num_open=2, seconds=10) is None


@pytest.mark.parametrize(
    ("statuses", "code"),
    [(("done", "done"), 0), (("done", "failed"), 1), (("done", "interrupted"), 130), (("failed", "waiting"), 1)],
)
def test_the_exit_code_tells_the_worst_that_happened(statuses, code, capsys):
    assert conclude(make_outcomes(*statuses)) == code
    errors = capsys.readouterr().err
    assert ("rerun the same command" in errors) == bool({"interrupted", "waiting"} & set(statuses))
    assert ("runs failed: bilevel[a=1], seed" in errors) == ("failed" in statuses)


def test_a_result_that_could_not_be_measured_is_a_dash(capsys):
    [outcome] = make_outcomes("done")
    final = {"epoch": 4, "test": float("nan")}  # mean average precision where no image has any of the classes
    Lines().heard(News(outcome.trial, {**DONE, "final": final, "best": {"epoch": 4}}, ending="done"))
    assert "seed 0: test -, at best -; runs/x" in capsys.readouterr().out
