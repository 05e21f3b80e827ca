"""The advice itself: what is recommended when, and the command in real processes."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from deepbilevel_lab.advice.advising import _scores
from deepbilevel_lab.advice.candidates import BASELINE, CANDIDATES
from deepbilevel_lab.advice.stages import Setting, make_stage, prepared
from deepbilevel_lab.advice.verdict import Finalist, judge
from deepbilevel_lab.cli.recommend import read_duration
from deepbilevel_lab.training.averaging import make_averaged
from tests.cli.trained import make_spec, run_command, run_in_process

GCE = "gce+weight-averaging"
COMMAND = [
    "recommend",
    "--data",
    "digits",
    "--noise",
    "uniform:0.3",
    "--limit",
    "300",
    "--threads",
    "1",
    "--epochs",
    "4",
]


def finalist(name, num_right, of=200, seconds=10.0):
    right = np.zeros(of)
    right[:num_right] = 1
    return Finalist(name, 0.1, right, (float(right.mean()),), None, seconds)


def test_a_clear_lead_is_followed_and_told_with_its_interval():
    verdict = judge([finalist(BASELINE, 100), finalist(GCE, 120, seconds=11.0)])
    assert verdict.name == GCE
    assert verdict.gain.value == pytest.approx(10)
    assert verdict.lines[0].cost == pytest.approx(1.1)
    text = verdict.to_text()
    assert text.startswith("Use generalised cross-entropy with weight averaging, learning rate 0.1: 10.0 points better")
    assert "95 % interval 5.8 to 14.2" in text


@pytest.mark.parametrize(
    ("num_right", "why"),
    [
        (100, "No lead that 200 samples set aside can show"),
        (60, "The others agree less often with the 200 samples set aside"),
        (None, "No other method finished"),
    ],
)
def test_without_a_lead_plain_training_is_recommended_and_it_is_said_why(num_right, why):
    others = [] if num_right is None else [finalist(GCE, num_right)]
    verdict = judge([finalist(BASELINE, 100), *others])
    assert (verdict.name, verdict.gain) == (BASELINE, None)
    assert verdict.to_text() == f"{why}: use plain SGD with weight averaging, learning rate 0.1."
    adam = judge([finalist(BASELINE, 100), *others], optimizer="AdamW")
    assert "use plain AdamW with weight averaging" in adam.to_text()


def test_trials_that_have_learned_nothing_are_told_from_those_that_have():
    trials = [finalist(BASELINE, 100), finalist(GCE, 120)]
    assert "too short to learn anything" not in judge(trials, most_frequent=59.0).to_text()
    assert judge(trials, most_frequent=60.0).to_text().startswith("The trials were too short to learn anything")


def test_a_weak_lead_is_left_alone_and_a_probable_one_followed():
    alternating = np.tile([1.0, 0.0], 100)
    other = alternating.copy()
    other[:20] = 1 - other[:20]  # as often right, on other images
    lead = other.copy()
    lead[1] = lead[3] = 1  # two more
    plain, better = finalist(BASELINE, 100), finalist(GCE, 100)
    weak = judge([replace(plain, right=alternating), replace(better, right=lead)])
    assert weak.name == BASELINE
    lead[21:41:2] = 1
    probable = judge([replace(plain, right=alternating), replace(better, right=lead)])
    assert probable.name == GCE
    assert "with a probability of" in probable.to_text()


def test_a_lead_that_only_some_runs_have_is_left_alone():
    even, uneven = (0.6, 0.6, 0.6, 0.6), (1.0, 0.4, 1.0, 0.4)
    plain, better = finalist(BASELINE, 120), finalist(GCE, 140)
    assert judge([replace(plain, accuracies=even), replace(better, accuracies=(0.7,) * 4)]).name == GCE
    assert judge([replace(plain, accuracies=even), replace(better, accuracies=uneven)]).name == BASELINE


def test_of_methods_that_cannot_be_told_apart_the_one_that_did_better_elsewhere_is_taken():
    mixup = finalist("mixup+weight-averaging", 121)
    mixup = replace(mixup, right=np.roll(mixup.right, 10))  # right on other images
    verdict = judge([finalist(BASELINE, 100), mixup, finalist(GCE, 120)])
    assert (verdict.name, verdict.tied) == (GCE, (mixup.name,))
    assert verdict.lines[0].name == mixup.name
    assert "cannot tell it from mixup; it did better in our measurements" in verdict.to_text()
    clear = judge([finalist(BASELINE, 100), finalist(mixup.name, 140), finalist(GCE, 120)])
    assert (clear.name, clear.tied) == (mixup.name, ())
    assert "better with a probability of more than 99 %" in clear.to_text(), "no sample makes sure"


def test_where_the_baseline_failed_the_best_of_the_others_is_taken_and_it_is_said():
    verdict = judge([finalist(GCE, 90), finalist("mixup+weight-averaging", 95)])
    assert verdict.name == "mixup+weight-averaging"
    assert "failed, so there is nothing to compare it with" in verdict.to_text()


def test_where_all_failed_there_is_no_advice():
    with pytest.raises(ValueError, match="all trials failed"):
        judge([])


@pytest.mark.parametrize("name", CANDIDATES)
def test_the_lines_for_a_loop_are_python(name):
    compile(CANDIDATES[name].lines, name, "exec")


def test_the_averaging_for_a_loop_is_that_of_the_trials():
    torch.manual_seed(0)
    model, images = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double(), torch.randn(8, 3).double()
    tried = make_averaged(make_spec(weight_averaging=0.99), model)
    scope = {"torch": torch, "model": model, "images": images}
    *definition, update, _ = CANDIDATES[BASELINE].lines.splitlines()
    exec("\n".join(definition), scope)
    for _ in range(2000):
        model(images)
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.01
        exec(update, scope)
        tried.update_parameters(model)
    for ours, theirs in zip(scope["averaged"].state_dict().values(), tried.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs)


def outcomes_of(stage, scores, failed=()):
    """Return how the trials of a stage ended; ``scores`` are results on the images set aside, by name."""
    records = {name: SimpleNamespace(figures={"selection": score}) for name, score in scores.items()}
    return [
        SimpleNamespace(
            trial=SimpleNamespace(id=spec.id),
            record=None if (cell.row, spec.seed) in failed else records[cell.row],
        )
        for cell in stage.cells
        for spec in cell.specs
    ]


def test_a_setting_is_judged_only_if_all_its_seeds_ended_well():
    base = prepared(make_spec())
    settings = [Setting(BASELINE, 0.1), Setting(GCE, 0.1)]
    stage = make_stage(base, 1, 2, settings, "name")
    scores = {BASELINE: 50.0, GCE: 60.0}
    assert _scores(stage, settings, outcomes_of(stage, scores)) == dict(zip(settings, (50, 60), strict=True))
    failed = outcomes_of(stage, scores, failed={(GCE, 1)})
    assert _scores(stage, settings, failed) == {settings[0]: 50}


@pytest.mark.parametrize("setting", ["loss=generalized-cross-entropy", "mixing=mixup", "method.mu=3"])
def test_what_recommend_finds_out_cannot_be_set(setting, tmp_path):
    done = run_in_process("recommend", "--data", "digits", "--set", setting, "--out", tmp_path)
    assert done.exit_code == 2
    assert "belongs to what recommend finds out" in " ".join(done.output.split())


@pytest.mark.parametrize("text", ["", "soon", "-3m", "0", "10d"])
def test_a_budget_that_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="--budget must be a time, as in 30m, 2h or 90s"):
        read_duration(text)


def test_images_with_several_labels_are_refused_with_the_way_out(tmp_path):
    done = run_in_process("recommend", "--data", "voc2007", "--out", tmp_path)
    assert done.exit_code == 2
    assert "use compare --tune" in " ".join(done.output.split())


@pytest.mark.slow
def test_the_command_recommends_keeps_a_record_and_goes_on_without_training_again(tmp_path):
    done = run_command(*COMMAND, "--budget", "10m", "--jobs", "2", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "samples set aside" in " ".join(done.stdout.split())
    assert "deepbilevel train --spec" in done.stdout
    (record,) = tmp_path.glob("sweep-recommend-*.json")
    kept = json.loads(record.read_text())
    assert len(kept["cells"]) == 4
    assert {run["status"] for cell in kept["cells"] for run in cell["runs"]} == {"done"}
    folders = {folder.name: folder.stat().st_mtime_ns for folder in tmp_path.iterdir() if folder.is_dir()}
    assert len(folders) == 1 + 15 + 5 + 8  # the first one measures how long an epoch takes
    again = run_command(*COMMAND, "--budget", "10m", "--jobs", "2", "--out", tmp_path, "--json")
    said = json.loads(again.stdout.splitlines()[-1])
    assert said["event"] == "recommended"
    assert said["name"] in CANDIDATES
    assert {folder.name: folder.stat().st_mtime_ns for folder in tmp_path.iterdir() if folder.is_dir()} == folders
    quiet = run_command(*COMMAND, "--budget", "10m", "--jobs", "2", "--out", tmp_path, "--quiet")
    assert max(map(len, quiet.stdout.partition("Train it:")[0].splitlines())) <= 250  # as wide as the terminal
    trained = run_command("train", "--spec", record.with_suffix(".toml"), "--out", tmp_path / "runs", "--quiet")
    assert trained.returncode == 0, trained.stderr
    page = run_command("report", tmp_path, "--out", tmp_path / "report")
    assert page.returncode == 0, page.stderr
    assert "Recommendation for digits" in (tmp_path / "report" / "index.html").read_text()
