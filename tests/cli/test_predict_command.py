"""`deepbilevel predict` as its user runs it."""

import csv
import io
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from deepbilevel_lab.cli import predict as command
from deepbilevel_lab.data import load_data
from deepbilevel_lab.networks.catalog import build_network
from deepbilevel_lab.training import prediction
from deepbilevel_lab.training.model_file import load_model, save_model
from deepbilevel_lab.training.prediction import Asked, Predictor, StoredShape
from tests.cli.trained import (
    COLOURS,
    make_spec,
    run_command,
    run_in_process,
    train_on_colours,
    train_run,
    write_colours,
    write_picture,
)


@pytest.fixture(scope="module")
def colour_run(tmp_path_factory):
    return train_on_colours(tmp_path_factory.mktemp("colours"))


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    return train_run(tmp_path_factory.mktemp("digits"), make_spec(epochs=2, method="sgd"))


def predict(*arguments):
    result = run_in_process("predict", *arguments)
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.stdout)))


def write_broken(path):
    write_picture(path, "red")
    path.write_bytes(path.read_bytes()[:200])
    return path


def test_pictures_get_their_colours(colour_run, tmp_path):
    write_colours(tmp_path / "new", per_class=3)
    write_picture(tmp_path / "new" / "deep" / "er" / "one.PNG", "blue", seed=9)
    write_picture(tmp_path / "new" / "._hidden.jpg", "blue")
    (tmp_path / "new" / "notes.txt").write_text("no image")
    single = write_picture(tmp_path / "single.png", "red", size=(33, 90), seed=7)
    rows = predict(colour_run, single, tmp_path / "new")
    assert rows[0]["path"] == str(single)
    assert [row["path"] for row in rows[1:]] == sorted(row["path"] for row in rows[1:])
    expected = ["red"] + ["blue"] * 3 + ["blue"] + ["red"] * 3
    assert [row["label"] for row in rows] == expected
    for row in rows:
        assert float(row["blue"]) + float(row["red"]) == pytest.approx(1, abs=2e-6)
        assert row["probability"] == row[row["label"]]
        assert float(row["probability"]) > 0.5


def test_the_middle_of_a_picture_counts_as_in_the_test_images(colour_run, tmp_path):
    pixels = np.zeros((40, 200, 3), np.uint8) + np.array(COLOURS["blue"], np.uint8)
    pixels[:, 80:120] = COLOURS["red"]
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert predict(colour_run, tmp_path / "wide.png")[0]["label"] == "red"


def test_a_table_names_files_beside_it(colour_run, tmp_path):
    write_picture(tmp_path / "a" / "blue.jpg", "blue")
    write_picture(tmp_path / "a" / "red.jpg", "red")
    (tmp_path / "a" / "table.csv").write_text("number,path\n1,red.jpg\n2,blue.jpg\n")
    rows = predict(colour_run, tmp_path / "a" / "table.csv")
    assert [(row["path"], row["label"]) for row in rows] == [
        (str(tmp_path / "a" / "red.jpg"), "red"),
        (str(tmp_path / "a" / "blue.jpg"), "blue"),
    ]


def test_the_label_a_table_gives_stands_beside_the_prediction(colour_run, tmp_path):
    write_picture(tmp_path / "one.jpg", "blue")
    write_picture(tmp_path / "two.jpg", "blue")
    (tmp_path / "table.csv").write_text("path,label\none.jpg,red\ntwo.jpg,\n")
    rows = predict(colour_run, tmp_path / "table.csv")
    assert [(row["given_label"], row["label"]) for row in rows] == [("red", "blue"), ("", "blue")]
    printed = run_in_process("predict", colour_run, tmp_path / "table.csv", "--json").stdout
    assert [row.get("given_label") for row in json.loads(printed)] == ["red", None]


@pytest.mark.parametrize(
    ("text", "message"),
    [("file\nred.jpg\n", "it needs path"), ("path\n", "no lines"), ("path,n\nred.jpg,1\n,2\n", "line 3")],
)
def test_a_table_that_does_not_name_files_is_refused(colour_run, tmp_path, text, message):
    (tmp_path / "table.csv").write_text(text)
    result = run_in_process("predict", colour_run, tmp_path / "table.csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


def test_the_command_writes_a_table_whole(colour_run, tmp_path):
    write_colours(tmp_path / "new", per_class=2)
    out = tmp_path / "labels.csv"
    out.write_text("old")
    result = run_command("predict", colour_run, "new", "--out", "labels.csv", "--workers", 1, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [row["path"] for row in rows] == ["new/blue/0.jpg", "new/blue/1.jpg", "new/red/0.jpg", "new/red/1.jpg"]
    assert [row["label"] for row in rows] == ["blue", "blue", "red", "red"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.csv", "new"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_file_stops_everything(colour_run, tmp_path, workers):
    write_colours(tmp_path, per_class=2)
    write_broken(tmp_path / "red" / "broken.jpg")
    out = tmp_path / "labels.csv"
    result = run_in_process("predict", colour_run, tmp_path, "--out", out, "--workers", workers)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "broken.jpg" in result.stderr
    assert "cannot be decoded" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not out.exists()


def test_broken_files_can_be_skipped(colour_run, tmp_path):
    write_colours(tmp_path, per_class=2)
    write_broken(tmp_path / "blue" / "0.jpg")
    (tmp_path / "table.csv").write_text("path\nmissing.jpg\n")
    result = run_in_process("predict", colour_run, tmp_path, tmp_path / "table.csv", "--skip-bad")
    assert result.exit_code == 0
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["label"] for row in rows] == ["blue", "red", "red"]
    skipped = result.stderr.strip().splitlines()
    assert len(skipped) == 2
    assert "0.jpg" in skipped[0]
    assert "missing.jpg does not exist" in skipped[1]
    result = run_in_process("predict", colour_run, tmp_path / "blue" / "0.jpg", "--skip-bad")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "none of the 1 files" in result.stderr


def test_files_of_digits_are_seen_as_the_data_set(digits_run, tmp_path):
    digits = load_data("digits", split="test").images[:6]
    for index, image in enumerate(digits):
        # White on black in the middle of a wide picture; the middle square is the digit itself.
        wide = np.zeros((8, 20), np.uint8)
        wide[:, 6:14] = image[0].numpy()
        Image.fromarray(wide).convert("RGB" if index % 2 else "L").save(tmp_path / f"{index}.png")
    with torch.no_grad():
        expected = load_model(digits_run).network(digits / 255).softmax(dim=1)
    rows = predict(digits_run, tmp_path)
    found = torch.tensor([[float(row[str(number)]) for number in range(10)] for row in rows])
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)
    assert [row["label"] for row in rows] == [str(int(number)) for number in expected.argmax(dim=1)]


def test_grey_is_how_bright_a_colour_looks():
    image = Image.new("RGB", (16, 16), (0, 255, 0))
    grey = StoredShape(8, channels=1)(image, "test", torch.Generator())
    assert grey.shape == (1, 8, 8)
    assert grey.unique().tolist() == [150]  # 0.587 of white


def test_json_holds_every_class(colour_run, tmp_path):
    picture = write_picture(tmp_path / "[red] ü.png", "blue")
    result = run_in_process("predict", colour_run, picture, "--json")
    (answer,) = json.loads(result.stdout)
    assert (answer["path"], answer["label"]) == (str(picture), "blue")
    assert set(answer["probabilities"]) == {"blue", "red"}
    assert answer["probabilities"]["blue"] == answer["probability"] > 0.5


def test_top_lists_the_best_labels_in_order(digits_run, tmp_path):
    Image.fromarray(load_data("digits").images[0, 0].numpy()).save(tmp_path / "0.png")
    (everything,) = predict(digits_run, tmp_path)
    (best,) = predict(digits_run, tmp_path, "--top", 3)
    assert list(best) == ["path", "label", "probability", "label2", "probability2", "label3", "probability3"]
    ranked = sorted((everything[str(number)] for number in range(10)), reverse=True)
    assert [best["probability"], best["probability2"], best["probability3"]] == ranked[:3]
    assert everything[best["label2"]] == best["probability2"]


def test_many_classes_become_the_five_best(digits_run, tmp_path):
    spec = load_model(digits_run).spec
    names = tuple(f"class {number}" for number in range(101))
    save_model(tmp_path / "many.safetensors", build_network("digit_cnn", num_classes=101), names, spec)
    Image.new("L", (8, 8), 77).save(tmp_path / "0.png")
    (row,) = predict(tmp_path / "many.safetensors", tmp_path / "0.png")
    assert [name for name in row if name.startswith("label")] == ["label", "label2", "label3", "label4", "label5"]


def test_a_class_called_label_does_not_hide_the_label(digits_run, tmp_path):
    spec = load_model(digits_run).spec
    save_model(tmp_path / "m.safetensors", build_network("digit_cnn", num_classes=2), ("label", "other"), spec)
    Image.new("L", (8, 8), 77).save(tmp_path / "0.png")
    (row,) = predict(tmp_path / "m.safetensors", tmp_path / "0.png")
    assert list(row) == ["path", "label", "probability", "class label", "other"]


def test_several_labels_are_joined(tmp_path):
    spec = make_spec("voc2007", "cifarnet", **{"data.view": "random-area", "data.test_crops": 2})
    network = build_network("cifarnet", num_classes=3)
    with torch.no_grad():
        network.fc3.weight.zero_()
        network.fc3.bias.copy_(torch.tensor([2.0, -2.0, 3.0]))  # probabilities 0.881, 0.119, 0.953
    save_model(tmp_path / "m.safetensors", network, ("cat", "dog", "sofa"), spec)
    picture = write_picture(tmp_path / "0.jpg", "red")
    (row,) = predict(tmp_path / "m.safetensors", picture)
    assert (row["label"], row["probability"]) == ("sofa;cat", "0.952574;0.880797")
    assert float(row["dog"]) == pytest.approx(0.119203)
    (answer,) = json.loads(run_in_process("predict", tmp_path / "m.safetensors", picture, "--json").stdout)
    assert answer["labels"] == ["sofa", "cat"]


def test_permuted_pixels_cannot_be_predicted_with(tmp_path):
    spec = make_spec("cifar10", "inception", **{"data.recipe": "pixel-permutation"})
    save_model(tmp_path / "m.safetensors", build_network("inception", num_classes=2), ("a", "b"), spec)
    result = run_in_process("predict", tmp_path / "m.safetensors", write_picture(tmp_path / "0.jpg", "red"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "a file has no number" in result.stderr


def test_a_terminal_gets_a_table(colour_run, tmp_path, capsys):
    predictor = Predictor(load_model(colour_run))
    answers = [(Asked(str(tmp_path / "[b]1.jpg"), "green"), torch.tensor([0.25, 0.75]))]
    command._print(answers, predictor, None)
    shown = capsys.readouterr().out.replace("\n", "")
    assert "75.0%" in shown
    assert "blue 25.0%" in shown
    assert "green" in shown


def test_a_run_of_another_machine_is_used_on_the_cpu(digits_run, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    trained = load_model(digits_run)
    spec = replace(trained.spec, device="cuda", precision="float16")
    save_model(tmp_path / "m.safetensors", trained.network, trained.class_names, spec)
    Image.new("L", (8, 8), 77).save(tmp_path / "0.png")
    here = run_in_process("predict", digits_run, tmp_path / "0.png")
    there = run_in_process("predict", tmp_path / "m.safetensors", tmp_path / "0.png")
    assert there.stdout == here.stdout
    assert "trained on cuda, which this machine lacks" in there.stderr


@pytest.mark.skipif(os.name == "nt", reason="names of files are text there")
def test_names_that_are_not_utf8_keep_their_bytes(digits_run, tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9.png"
    try:
        Image.new("L", (8, 8)).save(os.fsdecode(name))
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    out = tmp_path / "labels.csv"
    assert run_in_process("predict", digits_run, tmp_path, "--out", out).exit_code == 0
    assert name in out.read_bytes()


def test_ctrl_c_writes_nothing(digits_run, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(prediction, "predict_files", interrupted)
    Image.new("L", (8, 8)).save(tmp_path / "0.png")
    result = run_in_process("predict", digits_run, tmp_path, "--out", tmp_path / "labels.csv")
    assert result.exit_code == 130
    assert not (tmp_path / "labels.csv").exists()


def test_wrong_usage(colour_run, tmp_path):
    missing = run_in_process("predict", colour_run, tmp_path / "missing.jpg")
    assert missing.exit_code == 2
    assert "does not exist" in missing.stderr
    (tmp_path / "empty").mkdir()
    empty = run_in_process("predict", colour_run, tmp_path / "empty")
    assert empty.exit_code == 1
    assert "holds no image" in empty.stderr
    picture = write_picture(tmp_path / "0.jpg", "red")
    nowhere = run_in_process("predict", colour_run, picture, "--out", tmp_path / "no" / "labels.csv")
    assert nowhere.exit_code == 1
    assert "--out" in nowhere.stderr
