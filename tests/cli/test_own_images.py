"""Images of one's own, named and nothing else: which run that is, and that every command that trains can use them."""

import json

import pytest

from deepbilevel_lab.specs import from_plain, with_value
from deepbilevel_lab.training import RunSpec, default_spec, load_spec
from deepbilevel_lab.training.own_data import group_size
from tests.cli.trained import run_in_process, write_colours, write_picture

QUICK = ("--epochs", 1, "--threads", 1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_colours(tmp_path_factory.mktemp("own") / "photos", per_class=10)


@pytest.fixture(scope="module")
def in_parts(tmp_path_factory):
    root = tmp_path_factory.mktemp("parts") / "photos"
    write_colours(root / "train", per_class=10)
    write_colours(root / "val", per_class=3)
    return root


def spec_of(*arguments):
    result = run_in_process("train", *arguments, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    return from_plain(RunSpec, json.loads(result.stdout))


def only_record(out):
    [path] = out.glob("*/record.json")
    return json.loads(path.read_text())


def test_few_images_are_enough_for_every_command(photos, tmp_path):
    trained = run_in_process("train", "--data", photos, *QUICK, "--out", tmp_path / "train")
    assert trained.exit_code == 0, trained.output
    assert only_record(tmp_path / "train")["status"] == "done"
    audited = run_in_process("audit", photos, *QUICK, "--out", tmp_path / "audit", "--quiet")
    assert audited.exit_code == 0, audited.output
    compared = run_in_process("compare", "--data", photos, *QUICK, "--seeds", "0", "--out", tmp_path / "compare")
    assert compared.exit_code == 0, compared.output
    # sgd, uniform, random, bilevel and cross-validated: groups that are compared can be filled as well.
    assert len(list((tmp_path / "compare").glob("*/record.json"))) == 5


@pytest.mark.slow
def test_few_images_are_enough_for_advice(photos, tmp_path):
    advised = run_in_process(
        *("recommend", "--data", photos, "--epochs", 4, "--threads", 1, "--budget", "1h", "--out", tmp_path / "runs"),
    )
    assert advised.exit_code == 0, advised.output
    assert "Train it:" in advised.output


def test_groups_are_fitted_after_everything_that_changes_how_many_images_there_are(photos):
    assert (spec_of("--data", photos).group.num_batches, spec_of("--data", photos).group.batch_size) == (4, 2)
    few = spec_of("--data", photos, "--limit", 6).group
    assert few.num_batches * few.batch_size <= 6
    mine = spec_of("--data", photos, "--batch-size", 3, "--num-batches", 2).group
    assert (mine.num_batches, mine.batch_size) == (2, 3)
    assert spec_of("--data", photos, "--batch-size", 5).group.batch_size == 5


def test_photographs_are_evaluated_twenty_times_however_long_the_run_is(photos):
    assert spec_of("--data", photos).evaluate_every == 5  # of 100 epochs
    assert spec_of("--data", photos, "--epochs", 40).evaluate_every == 2
    assert spec_of("--data", photos, "--epochs", 10).evaluate_every == 1
    assert spec_of("--data", photos, "--set", "evaluate_every=3").evaluate_every == 3
    assert spec_of("--data", "digits").evaluate_every == 1


def test_the_options_are_fields_of_the_spec():
    spec = spec_of("--data", "digits", "--batch-size", 5, "--num-batches", 3, "--lr", 0.7)
    assert (spec.group.batch_size, spec.group.num_batches, spec.optimizer.lr) == (5, 3, 0.7)


@pytest.mark.parametrize("sizes", [[1, 1], [2, 3], [1] * 50, [500, 1], [13] * 10, [10_000] * 3, [7]])
def test_a_group_never_needs_more_images_than_there_are(sizes):
    count, size = group_size(sizes)
    assert count >= 2
    assert size >= 1
    assert count * size <= max(sum(sizes), 4)


def test_groups_that_cannot_be_filled_name_the_options(photos, tmp_path):
    result = run_in_process("train", "--data", photos, *QUICK, "--batch-size", 64, "--out", tmp_path)
    assert result.exit_code == 1
    assert "--batch-size (now 64)" in result.stderr
    assert "--num-batches (now 2)" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_dry_run_says_why_in_comments_and_is_the_same_run(photos, tmp_path):
    printed = run_in_process("train", "--data", photos, "--dry-run").stdout
    comments = [line for line in printed.splitlines() if line.startswith("# ")]
    for key in ("network", "network.side", "epochs", "schedule", "mixing", "group"):
        assert any(line.startswith(f"# {key}: ") for line in comments), key
    (tmp_path / "run.toml").write_text(printed)
    named = spec_of("--data", photos)
    assert load_spec(tmp_path / "run.toml") == named
    # The command adds the fingerprint of the images, and nothing else.
    assert with_value(default_spec("folder", path=str(photos)), "data.content", named.data.content) == named
    given = run_in_process("train", "--data", photos, "--epochs", 3, "--dry-run").stdout
    assert "# epochs:" not in given  # who gave it knows why


def test_larger_images_are_seen_larger_where_there_are_enough(tmp_path):
    assert spec_of("--data", write_colours(tmp_path / "small", per_class=2)).network.side == 64
    for number in range(3):
        for colour in ("blue", "red"):
            write_picture(tmp_path / "large" / colour / f"{number}.jpg", colour, size=(500, 400))
    assert spec_of("--data", tmp_path / "large").network.side == 128


def test_a_method_of_ones_own_choice_comes_alone(photos):
    assert spec_of("--data", photos).mixing is not None
    chosen = spec_of("--data", photos, "--method", "bilevel")
    assert (chosen.method.kind, chosen.mixing, chosen.loss.kind) == ("bilevel", None, "cross-entropy")
    assert spec_of("--data", photos, "--loss", "early-learning").mixing is None
    assert spec_of("--data", photos, "--set", "method=uniform").mixing is None


def test_another_network_keeps_its_recipe(photos):
    spec = spec_of("--data", photos, "--network", "cifarnet")
    assert (spec.data.view, spec.data.recipe, spec.schedule.kind) == ("thumbnail", "cifarnet", "exponential")


def test_parts_are_no_classes(in_parts, tmp_path):
    result = run_in_process("train", "--data", in_parts, *QUICK, "--out", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert f"{in_parts / 'train'} is trained on, {in_parts / 'val'} tested on" in result.stderr
    assert "untrusted" not in result.stdout
    record = only_record(tmp_path / "runs")
    assert (record["spec"]["data"]["path"], record["spec"]["data"]["test_path"]) == (
        str(in_parts / "train"),
        str(in_parts / "val"),
    )
    [run] = (tmp_path / "runs").iterdir()
    shown = run_in_process("evaluate", run, "--json")
    assert json.loads(shown.stdout)["images"] == 6
    assert "trusted" not in (run / "README.md").read_text()


def test_a_third_part_is_left_alone(in_parts, tmp_path):
    root = tmp_path / "photos"
    for part in ("train", "valid", "test"):
        write_colours(root / part, per_class=8)
    printed = run_in_process("train", "--data", root, "--dry-run").stdout
    assert f"{root / 'valid'} tested on; {root / 'test'} is left alone: deepbilevel evaluate RUN" in printed


def test_a_class_called_train_is_a_class(tmp_path):
    for name in ("train", "test"):
        write_picture(tmp_path / name / "0.jpg", "red")
    assert spec_of("--data", tmp_path).data.test_path is None


def test_clean_images_to_test_on_may_stand_anywhere(photos, in_parts, tmp_path):
    spec = spec_of("--data", photos, "--val", in_parts / "val")
    assert (spec.data.path, spec.data.test_path) == (str(photos), str(in_parts / "val"))
    table = tmp_path / "clean.csv"
    table.write_text(f"path,label\n{photos}/red/0.jpg,red\n")  # lacks a class, which the network knows all the same
    result = run_in_process("train", "--data", photos, "--val", table, *QUICK, "--out", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    table.write_text(f"path,label\n{photos}/red/0.jpg,green\n")
    result = run_in_process("train", "--data", photos, "--val", table, *QUICK, "--seed", 1, "--out", tmp_path / "runs")
    assert result.exit_code == 1
    assert "not all among those to train on: green" in result.stderr


def test_val_is_for_images_of_ones_own():
    result = run_in_process("train", "--data", "digits", "--val", "photos", "--dry-run")
    assert result.exit_code == 2
    assert "digits has a test set" in result.stderr


def test_labels_of_the_same_origin_are_called_untrusted(photos, tmp_path):
    result = run_in_process("train", "--data", photos, *QUICK, "--out", tmp_path / "runs")
    assert "as untrusted as the rest" in result.stdout
    assert "--val" in result.stdout
    [run] = (tmp_path / "runs").iterdir()
    assert "as untrusted as those trained on" in (run / "README.md").read_text()
