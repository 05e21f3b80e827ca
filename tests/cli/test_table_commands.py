"""The commands on tables of numbers and of text, as their user runs them."""

import csv
import io
import json
import struct

import pytest

from deepbilevel_lab.training.model_file import load_model
from deepbilevel_lab.training.packing import from_bytes, to_bytes
from tests.audit_command.found import read_table
from tests.cli.trained import refusal, run, run_command
from tests.data.tables import write_notes, write_patients, write_table

QUICK = ("--epochs", "3", "--threads", "1", "--quiet")


def train_table(folder, *arguments):
    run("train", *QUICK, *arguments, "--out", folder)
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    return write_patients(tmp_path_factory.mktemp("patients") / "patients.csv")


@pytest.fixture(scope="module")
def patients_run(patients, tmp_path_factory):
    return train_table(tmp_path_factory.mktemp("runs"), "--data", patients, "--target", "state", "--ignore", "place")


@pytest.fixture(scope="module")
def notes_run(tmp_path_factory):
    notes = write_notes(tmp_path_factory.mktemp("notes") / "notes.csv")
    return train_table(
        tmp_path_factory.mktemp("runs"), "--data", notes, "--text", "note", "--target", "kind", "--epochs", "15"
    )


def predict(*arguments):
    return list(csv.DictReader(io.StringIO(run("predict", *arguments).stdout)))


def test_a_run_says_which_columns_it_uses_and_which_not(patients, tmp_path):
    shown = run("train", "--data", patients, "--target", "state", "--epochs", "1", "--threads", "1", "--out", tmp_path)
    assert "predicts state from pulse (number), cough (category)" in shown.output
    assert "left out: patient_id (looks like an id or free text" in shown.output
    assert "left out: place (constant)" in shown.output


def test_what_was_learned_is_in_the_predictions(patients_run, patients, notes_run, tmp_path):
    rows = predict(patients_run, patients)
    assert [row["index"] for row in rows] == [str(number) for number in range(240)]
    assert sum(row["given_label"] == row["label"] for row in rows) > 180  # guessing gives 120
    new = write_table(tmp_path / "new.csv", [["team win goal"], ["salt soup oven"]], ["note"])
    rows = predict(notes_run, new)
    assert [row["label"] for row in rows] == ["sport", "food"]
    assert list(rows[0]) == ["index", "label", "probability", "food", "sport"]


def test_rows_are_encoded_as_in_training_whoever_stands_beside_them(patients_run, patients, tmp_path):
    rows = read_table(patients)[40:43]
    part = write_table(tmp_path / "part.csv", [[row["cough"], row["pulse"]] for row in rows], ["cough", "pulse"])
    alone, among = predict(patients_run, part), predict(patients_run, patients)[40:43]
    for one, other in zip(alone, among, strict=True):
        assert float(one["ill"]) == pytest.approx(float(other["ill"]), abs=1e-5)


def test_unknown_categories_and_missing_values_are_predicted(patients_run, tmp_path):
    new = write_table(tmp_path / "new.csv", [["", "?"], ["80", "sometimes"]], ["pulse", "cough"])
    assert len(predict(patients_run, new)) == 2


def test_words_for_numbers_stop_or_are_skipped(patients_run, tmp_path):
    new = write_table(tmp_path / "new.csv", [["80", "often"], ["fast", "often"]], ["pulse", "cough"])
    assert "row 1: column 'pulse' must be a number, got 'fast'" in refusal("predict", patients_run, new)
    result = run("predict", patients_run, new, "--skip-bad", "--json")
    assert [row["index"] for row in json.loads(result.stdout)] == [0]
    assert "skipped: " in result.stderr
    write_table(new, [["fast", "often"]], ["pulse", "cough"])
    assert "none of the 1 rows can be read" in refusal("predict", patients_run, new, "--skip-bad")


def test_what_is_not_the_runs_kind_of_data_is_refused(patients_run, patients, tmp_path):
    lacking = write_table(tmp_path / "lacking.csv", [["80"]], ["pulse"])
    assert "lacks the column 'cough'" in refusal("predict", patients_run, lacking)
    assert "give one table at a time" in refusal("predict", patients_run, patients, patients)
    (tmp_path / "photo.jpg").write_bytes(b"no picture")
    assert "is none; give a .csv or .parquet file" in refusal("predict", patients_run, tmp_path / "photo.jpg")
    assert "was trained on a table, and these are images" in refusal("evaluate", patients_run, "--data", "digits")


def test_an_evaluation_is_of_the_runs_test_rows_or_of_another_table(patients_run, patients, tmp_path):
    own = json.loads(run("evaluate", patients_run, "--json").stdout)
    assert own["score"] == own["recorded"]
    assert own["images"] == 48
    other = json.loads(run("evaluate", patients_run, "--data", patients, "--json").stdout)
    assert other["images"] == 240
    rows = predict(patients_run, patients)
    right = sum(row["label"] == row["given_label"] for row in rows)
    assert other["score"] == pytest.approx(100 * right / 240)
    single = write_table(tmp_path / "one.csv", [["80", "often", "ill"]], ["pulse", "cough", "state"])
    assert json.loads(run("evaluate", patients_run, "--data", single, "--json").stdout)["images"] == 1
    assert "240 rows" in run("evaluate", patients_run, "--data", patients).stdout
    strange = write_table(tmp_path / "strange.csv", [["80", "often", "dead"]], ["pulse", "cough", "state"])
    assert "classes of these rows are not all" in refusal("evaluate", patients_run, "--data", strange)


def test_the_card_says_what_it_predicts_from(patients_run, notes_run):
    card = (patients_run / "README.md").read_text()
    assert "Predicts state from: pulse \\(number\\), cough \\(category\\)." in card
    assert "tabular-classification" in card
    assert "deepbilevel predict . table.csv" in card
    assert "text-classification" in (notes_run / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "digits", "--target", "y"], "--target is the column of a table, and digits is none"),
        (["--data", "TABLE", "--text", "cough"], "name the column to predict as well: --target"),
        (["--data", "TABLE", "--target", "stat"], "did you mean 'state'"),
        (["--data", "TABLE", "--target", "state", "--ignore", "plac"], "did you mean 'place'"),
        (["--data", "TABLE", "--target", "pulse"], "the target 'pulse' is missing"),
        (["--data", "TABLE", "--target", "patient_id"], "in one row only"),
        (["--data", "TABLE", "--target", "place"], "two classes are needed"),
        (["--data", "TABLE", "--target", "state", "--network", "cifarnet"], "networks for tables: mlp"),
        (["--data", "TABLE", "--target", "state", "--set", "data.recipe=preact"], "is for images"),
        (["--data", "TABLE", "--target", "state", "--set", "data.test_crops=3"], "is for image files"),
        (["--data", "TABLE"], "needs path and label"),
        (["--data", "some.parquet"], "name the column to predict: --target"),
        (["--data", "dataset"], "a Dataset"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_leaves_nothing(patients, tmp_path, arguments, message):
    given = [str(patients) if each == "TABLE" else each for each in arguments]
    assert message in refusal("train", *given, *QUICK, "--out", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_groups_fit_themselves_to_the_table(tmp_path):
    table = write_patients(tmp_path / "small.csv", num_rows=30)
    train_table(tmp_path / "runs", "--data", table, "--target", "state", "--method", "bilevel")


def test_methods_are_compared_on_a_table(patients, tmp_path):
    table = ("--data", patients, "--target", "state", "--noise", "uniform:0.2")
    arguments = ("--methods", "sgd,bilevel", "--seeds", "0", "--epochs", "1", "--threads", "1", "--quiet")
    shown = run_command("compare", *table, *arguments, "--out", tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "bilevel" in shown.stdout


@pytest.mark.slow
def test_something_is_recommended_for_a_table(patients, tmp_path):
    table = ("--data", patients, "--target", "state", "--noise", "uniform:0.2", "--epochs", "2")
    shown = run_command("recommend", *table, "--budget", "1h", "--threads", "1", "--out", tmp_path, "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout.splitlines()[-1])["event"] == "recommended"


def changed(path, folder, change):
    entries, weights = from_bytes(path.read_bytes())
    about = json.loads(entries["deepbilevel"])
    change(about)
    new = folder / "model.safetensors"
    new.write_bytes(to_bytes(weights, json.dumps(about)))
    return new


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.pop("encoding"),
        lambda about: about["encoding"]["columns"].pop(),
        lambda about: about["encoding"]["columns"][0].update(std=0),
        lambda about: about["encoding"]["columns"][0].update(mean="x"),
        lambda about: about.update(input_shape=[10**12]),
        lambda about: about.update(input_shape=[-3]),
        lambda about: about.update(input_shape="wide"),
        lambda about: about.update(encoding=[]),
    ],
)
def test_a_strangers_model_file_is_refused_in_one_line(patients_run, tmp_path, change):
    path = changed(patients_run / "model.safetensors", tmp_path, change)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        load_model(path)


def test_a_model_file_holds_no_code(notes_run):
    content = (notes_run / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header["__metadata__"]["deepbilevel"])
    assert about["encoding"]["columns"][0]["kind"] == "text"
