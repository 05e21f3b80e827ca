"""What a person decided about labels, applied to a data set; or refused, with the line and what to do."""

import pytest
import torch

from deepbilevel_lab.data import load_data
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.training.sets import load_sets
from tests.cli.trained import make_spec, run_in_process, write_colours
from tests.data.layouts import write

HEADER = "index,path,given_label,decision,new_label\n"


@pytest.fixture
def photos(tmp_path):
    return write_colours(tmp_path / "photos", per_class=6)


def decided(tmp_path, *lines, header=HEADER):
    path = tmp_path / "corrected.csv"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return str(path)


def test_labels_are_changed_and_images_dropped(tmp_path, photos):
    table = decided(
        tmp_path, "0,blue/0.jpg,blue,accept,red", "1,blue/1.jpg,blue,drop,", "7,red/1.jpg,red,keep,red",
        "8,red/2.jpg,red,relabel,blue",
    )  # fmt: skip
    data = load_data("folder", photos, labels=table)
    whole = load_data("folder", photos)
    assert [path.name for path in data.paths] == [p.name for i, p in enumerate(whole.paths) if i != 1]
    assert data.numbers.tolist() == [0, *range(2, 12)]
    assert data.labels.tolist() == [1, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1]
    assert data.class_names == ("blue", "red")


def test_a_table_with_paths_or_indices_alone_is_enough(tmp_path, photos):
    by_path = load_data(
        "folder", photos, labels=decided(tmp_path, "./blue/2.jpg,accept,red", header="path,decision,new_label\n")
    )
    by_index = load_data(
        "folder", photos, labels=decided(tmp_path, "2,accept,red", header="index,decision,new_label\n")
    )
    assert torch.equal(by_path.labels, by_index.labels)
    assert by_path.labels.tolist() == [0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_images_in_memory_go_by_index(tmp_path):
    label = load_data("digits").labels[5].item()
    data = load_data("digits", labels=decided(tmp_path, f"5,,{label},accept,{(label + 1) % 10}"))
    assert data.labels[5] == (label + 1) % 10


def test_the_mark_before_a_formula_is_taken_away(tmp_path):
    photos = write_colours(tmp_path / "photos", per_class=3)
    (photos / "red").rename(photos / "=red")
    data = load_data("folder", photos, labels=decided(tmp_path, "3,blue/0.jpg,blue,accept,'=red"))
    assert data.labels[3] == 0


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0,blue/9.jpg,blue,keep,blue"], r"line 2: no image of the data set has the path 'blue/9.jpg'"),
        (["99,,blue,keep,blue"], r"line 2: index must be a number from 0 to 11, got '99'"),
        (["-1,,blue,keep,blue"], r"line 2: index must be a number from 0 to 11, got '-1'"),
        ([",,blue,keep,blue"], r"line 2: index and path are empty"),
        (["1,blue/0.jpg,blue,keep,blue"], r"image 1 is not 'blue/0.jpg', which is image 0 now"),
        (["0,,blue,accept,rad"], r"unknown class in .*line 2 'rad'; did you mean 'red'"),
        (["0,,blue,accept,"], r"unknown class in .*line 2 ''"),
        (["0,,blue,acept,red"], r"unknown decision in .*line 2 'acept'; did you mean 'accept'"),
        (["0,,red,accept,red"], r"image 0 has the label 'blue', and had 'red' when it was audited"),
        (["0,,blue,keep,blue", "0,,blue,drop,"], r"line 3: image 0 is there already, in line 2"),
        ([f"{i},,red,drop," for i in range(6, 12)], r"no image has the class 'red'"),
    ],
)
def test_lines_that_cannot_be_are_named(tmp_path, photos, lines, message):
    with pytest.raises(ValueError, match=message):
        load_data("folder", photos, labels=decided(tmp_path, *lines))


def test_other_tables_and_missing_ones_are_named(tmp_path, photos):
    with pytest.raises(ValueError, match="has the columns path, label; it needs decision, new_label and index or path"):
        load_data("folder", photos, labels=decided(tmp_path, header="path,label\n"))
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv is not a file; save it on the page of an audit"):
        load_data("folder", photos, labels="nowhere.csv")


OF_SEVERAL = "index,path,class_index,given_label,decision,new_label\n"


def test_of_several_labels_each_is_decided_by_itself(tmp_path):
    root = write("voc2007", tmp_path / "voc")
    before = load_data("voc2007", root)
    given = [int(before.labels[place, 0]) for place in range(4)]
    lines = [f"{place},,aeroplane,{given[place]},{decision},{new}" for place, decision, new in (
        (0, "accept", 1 - given[0]), (1, "keep", given[1]), (2, "drop", "")
    )]  # fmt: skip
    lines += ["0,,dog,,relabel,1", f"3,,person,{int(before.labels[3, 14])},keep,{int(before.labels[3, 14])}"]
    after = load_data("voc2007", root, labels=decided(tmp_path, *lines, header=OF_SEVERAL))
    expected = before.labels.clone()
    expected[0, 0], expected[0, before.class_names.index("dog")] = 1 - given[0], 1
    kept = [place for place in range(len(before)) if place != 2]
    assert after.numbers.tolist() == kept
    assert torch.equal(after.labels, expected[kept])
    difficult = before.difficult.clone()
    difficult[0, 0] = difficult[0, before.class_names.index("dog")] = False
    assert torch.equal(after.difficult, difficult[kept])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0,,aeroplan,,keep,1", r"unknown class in .*line 2 'aeroplan'; did you mean 'aeroplane'"),
        ("0,,dog,,accept,yes", r"line 2: of several labels each is 1 or 0, got 'yes'"),
        ("0,,dog,,accept,", r"line 2: of several labels each is 1 or 0, got ''"),
        ("0,,dog,,keep,1\n0,,dog,,drop,", r"line 3: image 0 with class 'dog' is there already, in line 2"),
    ],
)
def test_lines_about_several_labels_that_cannot_be_are_named(tmp_path, line, message):
    root = write("voc2007", tmp_path / "voc")
    with pytest.raises(ValueError, match=message):
        load_data("voc2007", root, labels=decided(tmp_path, line, header=OF_SEVERAL))


def test_labels_that_were_other_ones_when_audited_are_named_by_class(tmp_path):
    root = write("voc2007", tmp_path / "voc")
    given = int(load_data("voc2007", root).labels[0, 0])
    table = decided(tmp_path, f"0,,aeroplane,{1 - given},keep,{1 - given}", header=OF_SEVERAL)
    said = f"image 0 with class 'aeroplane' has the label '{given}', and had '{1 - given}' when it was audited"
    with pytest.raises(ValueError, match=said):
        load_data("voc2007", root, labels=table)
    with pytest.raises(ValueError, match="it needs class_index, decision, new_label and index or path"):
        load_data("voc2007", root, labels=decided(tmp_path))


def test_predictions_of_a_run_are_no_labels_of_images_that_have_several():
    with pytest.raises(SpecError, match="are one class per image; voc2007 has several"):
        make_spec("voc2007", **{"data.labels": "run:0123456789", "data.limit": None, "data.test_limit": None})


def test_a_run_trains_on_what_was_decided(tmp_path):
    photos = write_colours(tmp_path / "photos")
    table = decided(tmp_path, "0,blue/0.jpg,blue,drop,", "1,blue/1.jpg,blue,accept,red")
    groups = ("--set", "group.num_batches=2", "--set", "group.batch_size=4")
    options = (
        "--data",
        photos,
        "--labels",
        table,
        "--epochs",
        1,
        "--threads",
        1,
        "--method",
        "sgd",
        "--quiet",
        *groups,
    )
    done = run_in_process("train", *options, "--out", tmp_path / "runs")
    assert done.exit_code == 0, done.output
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("folder-corrected-small-resnet-sgd-")
    spec = make_spec("folder", path=str(photos), **{"data.labels": table, "data.limit": None, "data.test_limit": None})
    sets = load_sets(spec.data, tmp_path, noise=None, seed=0)
    labels = {
        number: label
        for part in (sets.train, sets.test)
        for number, label in zip(part.numbers.tolist(), part.labels.tolist(), strict=True)
    }
    assert sorted(labels) == list(range(1, 48))
    assert labels[1] == 1
    done = run_in_process("train", *options[:3], "nowhere.csv", *options[4:], "--out", tmp_path / "other")
    assert done.exit_code == 1
    assert "nowhere.csv is not a file" in done.output
    assert not (tmp_path / "other").exists()
