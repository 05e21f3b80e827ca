"""Commands with hostile values: they do what they are told or end with a message and 1 or 2, never with a traceback."""

import random

import pytest

from tests.cli.trained import SMALL_GROUPS, make_spec, run_in_process, train_run

VALUES = [
    *("", " ", "-", "--", "0", "-1", "1e999", "nan", "9" * 40, "0.5", "uniform:0.5", "uniform:", "uniform:2", ":"),
    *("digits", "cifar10", "csv", "folder", "nosuch", "../..", "/dev/null", "/dev/zero", "/", "[red]x[/]", "\x1b[2J"),
    *("0-4", "4-0", "0,2", "0-99999999", "sgd", "bilevel", "bilevel[method.mu=0.1]", "bilevel[", "a:b", "os:system"),
    *("builtins:eval", "method=sgd", "epochs=0", "optimizer.lr=1e400", "data=null", "a.b.c=1", "group={}", "=", "30m"),
    *("ray", "ray:", "local", "null", "true", "[]", "{}", "[" * 2_000, "{run}", "{run}/record.json", "\0", "é", "1h"),
    *("{run}/spec.json", "{out}/nosuch", "run:0123456789", "worst", "mixup", "co-teaching", "${HOME}", "%s%n", "~"),
    "{run}/model.safetensors",
]
TRAIN = [
    "--data",
    "--network",
    "--method",
    "--loss",
    "--mixing",
    "--labels",
    "--noise",
    "--epochs",
    "--limit",
    "--seed",
]
TRAIN += ["--seeds", "--jobs", "--threads", "--workers", "--set", "--spec", "--save-seconds", "--data-dir"]
COMPARE = ["--data", "--network", "--noise", "--methods", "--seeds", "--tune", "--jobs", "--on", "--epochs", "--limit"]
COMPARE += ["--threads", "--workers", "--set", "--spec", "--name", "--data-dir"]
COMMANDS = {
    ("train", "--dry-run"): TRAIN,
    ("compare", "--dry-run"): COMPARE,
    ("reproduce", "table1", "--dry-run"): [
        "--scale",
        "--seeds",
        "--row",
        "--column",
        "--at",
        "--on",
        "--threads",
        "--device",
    ],
    ("runs", "show"): ["", "--json"],
    ("runs", "list"): ["", "--json"],
    ("runs", "compare"): ["", "--json"],
    ("runs", "export"): ["", "--out"],
    ("predict", "{run}"): ["", "--out", "--batch-size"],
    ("evaluate",): ["", "--data", "--data-dir"],
    ("report",): ["", "--out"],
    ("data", "check"): ["", "--dir"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {**SMALL_GROUPS, "data.limit": 64, "data.test_limit": 20}
    return train_run(tmp_path_factory.mktemp("runs"), make_spec(**settings))


def make_command(seed, run, out):
    chance = random.Random(seed)
    command = chance.choice(list(COMMANDS))
    words = list(command)
    if chance.random() < 0.5 and command[0] in ("train", "compare"):
        words += ["--data", "digits"]
    for _ in range(chance.randint(1, 4)):
        option, value = chance.choice(COMMANDS[command]), chance.choice(VALUES)
        words += [option, value] if option and chance.random() < 0.95 else [option or value]
    places = {"{run}": str(run), "{out}": str(out)}
    for place, path in places.items():
        words = [word.replace(place, path) for word in words]
    return words


def attack(seed, run, out):
    words = make_command(seed, run, out)
    done = run_in_process(*words)
    assert done.exit_code in (0, 1, 2), (seed, words, done.output)
    assert done.exception is None or isinstance(done.exception, SystemExit), (seed, words, done.exception)
    assert "Traceback" not in done.output, (seed, words)


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(120), id="quick"), pytest.param(range(1_000, 2_500), marks=pytest.mark.slow, id="long")],
)
def test_hostile_values(seeds, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in seeds:
        attack(seed, run, tmp_path)
