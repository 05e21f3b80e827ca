"""`deepbilevel evaluate` as its user runs it."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from deepbilevel_lab.data import load_data
from deepbilevel_lab.data.cifar import CIFAR10
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.model_file import load_model
from tests.cli.trained import SMALL_GROUPS, make_spec, run_command, run_in_process, train_on_colours, train_run
from tests.data.layouts import write_cifar, write_voc


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    return train_run(tmp_path_factory.mktemp("runs"), make_spec(noise="uniform:0.3", epochs=6, method="sgd"))


@pytest.fixture(scope="module")
def colour_run(tmp_path_factory):
    return train_on_colours(tmp_path_factory.mktemp("colours"))


def final_of(run):
    return json.loads((run / "record.json").read_text())["final"]


def evaluate(*arguments, **environment):
    result = run_in_process("evaluate", *arguments, "--json", **environment)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_a_run_is_evaluated_as_its_record_says(digits_run):
    result = evaluate(digits_run)
    assert result["score"] == result["recorded"] == final_of(digits_run)["test"]
    assert (result["images"], result["metric"], result["split"]) == (60, "accuracy", "test")
    assert evaluate(digits_run / "model.safetensors")["score"] == result["score"]


def test_classes_add_up_to_the_whole(digits_run):
    result = evaluate(digits_run)
    right = [each["images"] * each["score"] / 100 for each in result["classes"]]
    assert sum(right) == pytest.approx(result["images"] * result["score"] / 100)
    assert sum(each["images"] for each in result["classes"]) == 60
    assert len({round(number, 6) for number in right}) > 1  # not one figure for all


def test_training_images_carry_the_labels_the_run_saw(digits_run):
    result = evaluate(digits_run, "--split", "train")
    assert (result["score"], result["clean_score"]) == (
        final_of(digits_run)["train"],
        final_of(digits_run)["train_clean"],
    )
    assert result["images"] == 256
    # The two figures may happen to be equal; that each is of its own labels, which differ, is checked by hand.
    model = load_model(digits_run)
    data = build(model.spec, digits_run).train.data
    assert (data.labels != data.clean_labels).any()
    predicted = model.network(torch.stack([data.read(i) for i in range(256)]) / 255).argmax(dim=1)
    for figure, labels in (("score", data.labels), ("clean_score", data.clean_labels)):
        assert result[figure] == pytest.approx(100 * (predicted == labels).double().mean().item())


def test_the_command_prints_a_table_and_the_figure(digits_run, tmp_path):
    result = run_command("evaluate", digits_run, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"top-1 accuracy {final_of(digits_run)['test']:.2f} %; 60 images, 10 classes" in result.stdout
    assert result.stdout.count("│ 9 ") == 1
    assert result.stderr == ""


def test_other_images_are_matched_by_the_names_of_their_classes(digits_run, tmp_path):
    digits = load_data("digits", split="test")
    for index in range(80):
        if (label := int(digits.labels[index])) in (3, 7, 8):
            (tmp_path / str(label)).mkdir(exist_ok=True)
            Image.fromarray(digits.images[index, 0].numpy()).save(tmp_path / str(label) / f"{index}.png")
    chosen = [index for index in range(80) if int(digits.labels[index]) in (3, 7, 8)]
    network = load_model(digits_run).network
    right = network(digits.images[chosen] / 255).argmax(dim=1) == digits.labels[chosen]
    result = evaluate(digits_run, "--data", tmp_path)
    assert result["score"] == pytest.approx(100 * right.double().mean().item())
    assert [each["name"] for each in result["classes"]] == ["3", "7", "8"]
    assert result["recorded"] is None
    assert evaluate(digits_run, "--data", "folder", "--data-dir", tmp_path)["score"] == result["score"]


def test_a_limit_takes_so_many(digits_run):
    assert evaluate(digits_run, "--limit", 20)["images"] == 20
    assert evaluate(digits_run, "--limit", 100)["images"] == 100  # the run itself tested on 60
    assert evaluate(digits_run, "--data", "digits", "--split", "train")["images"] == 1347


def test_images_of_ones_own_are_split_as_in_training(colour_run, tmp_path):
    result = evaluate(colour_run)
    assert result["score"] == final_of(colour_run)["test"]
    assert (result["images"], result["metric"]) == (10, "accuracy")
    assert [each["images"] for each in result["classes"]] == [5, 5]
    moved = tmp_path / "elsewhere"
    shutil.copytree(json.loads((colour_run / "spec.json").read_text())["data"]["path"], moved)
    shutil.rmtree(moved / "blue")
    shutil.copytree(moved / "red", moved / "blue")  # everything that is called blue there is red
    assert evaluate(colour_run, "--data-dir", moved)["score"] == 50.0
    # The usual folder of data sets is not where these images are.
    assert evaluate(colour_run, DEEPBILEVEL_DATA=str(moved))["score"] == result["score"]


def test_several_labels_are_scored_by_average_precision(tmp_path):
    write_voc(tmp_path / "voc")
    crops = {"data.view": "random-area", "data.test_crops": 2}
    settings = {**SMALL_GROUPS, "group.batch_size": 4, "data.test_limit": 22, **crops}
    run = train_run(tmp_path, make_spec("voc2007", "cifarnet", **settings), tmp_path / "voc")
    result = evaluate(run)
    assert result["score"] == result["recorded"] == final_of(run)["test"]
    assert (result["metric"], result["crops"], result["images"]) == ("mAP", 2, 22)
    scores = [each["score"] for each in result["classes"]]
    assert np.mean(scores) == pytest.approx(result["score"])
    text = run_in_process("evaluate", run, "--crops", 1).stdout
    assert "mean average precision" in text
    assert "2 crops" not in text


def test_a_named_label_set_is_scored_beside_the_clean_labels(tmp_path):
    write_cifar(tmp_path, CIFAR10)
    clean = load_data("cifar10", tmp_path).labels.numpy()
    (tmp_path / "cifar-10n").mkdir()
    worst = (clean + (np.arange(100) % 4 == 0)) % 10
    np.savez(tmp_path / "cifar-10n" / "labels.npz", clean=clean, worst=worst, aggre=clean)
    run = train_run(tmp_path / "runs", make_spec("cifar10", noise="uniform:0.5", **SMALL_GROUPS), tmp_path)
    clean_score = evaluate(run, "--split", "train")["clean_score"]
    result = evaluate(run, "--labels", "worst")
    assert (result["split"], result["clean_score"]) == ("train", clean_score)
    assert result["score"] != clean_score
    assert evaluate(run, "--labels", "aggre")["score"] == clean_score  # the run's own noise does not fall on them
    # The folder of the data sets comes from the record unless the environment names one.
    failed = run_in_process("evaluate", run, DEEPBILEVEL_DATA=str(tmp_path / "empty"))
    assert failed.exit_code == 1
    assert f"cifar10 is not in {tmp_path / 'empty'}" in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "digit"), "did you mean 'digits'"),
        (("--data", "folder"), "--data folder needs the place of your images"),
        (("--split", "tset"), "did you mean 'test'"),
        (("--crops", "2"), "--crops 2 is for image files"),
        (("--labels", "worst"), "unknown label set of digits 'worst'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(digits_run, arguments, message):
    result = run_in_process("evaluate", digits_run, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_images_that_do_not_fit_are_refused(digits_run, colour_run, tmp_path):
    result = run_in_process("evaluate", colour_run, "--data", "digits")
    assert result.exit_code == 1
    assert "not all among the network's: 0, 1, 2" in result.stderr
    (tmp_path / "cat").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "cat" / "0.png")
    result = run_in_process("evaluate", digits_run, "--data", tmp_path)
    assert result.exit_code == 1
    assert "among the network's: cat" in result.stderr
    result = run_in_process("evaluate", digits_run, "--crops", 3)
    assert result.exit_code == 1
    assert "--crops 3 is for image files" in result.stderr


def test_a_record_that_says_otherwise_is_told(digits_run, tmp_path):
    run = tmp_path / "copy"
    shutil.copytree(digits_run, run)
    record = json.loads((run / "record.json").read_text())
    record["final"]["test"] = 12.5
    (run / "record.json").write_text(json.dumps(record))
    result = run_in_process("evaluate", run)
    assert result.exit_code == 0
    assert "the record says 12.50" in result.stderr


def test_a_run_that_is_not_there(tmp_path):
    result = run_in_process("evaluate", tmp_path)
    assert result.exit_code == 1
    assert "model.safetensors does not exist" in result.stderr
    assert run_in_process("evaluate").exit_code == 2
