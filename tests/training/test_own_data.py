"""Runs on a data set that exists in Python only: the same training, an identity, and clear refusals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from deepbilevel_lab.data import OwnData, load_data
from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training import RunFolder, default_spec, load_model, train
from deepbilevel_lab.training.inputs import with_own_data
from tests.cli.trained import run_in_process

QUICK = {"epochs": 2, "threads": 1, "device": "cpu", "group.num_batches": 2, "group.batch_size": 8}
BILEVEL = {"method": "bilevel", "mixing": None}


def make_spec(network="mlp", **settings):
    spec = default_spec("dataset", network)
    for key, value in {**BILEVEL, **QUICK, **settings}.items():
        spec = with_value(spec, key, value)
    return spec


def two_clouds(num_points=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_points) % 2
    return torch.randn(num_points, 5, generator=generator) + 3 * labels[:, None], labels


def run(tmp_path, data, spec=None, **options):
    record = train(spec or make_spec(), out=tmp_path, data_dir=Path("nowhere"), data=data, **options)
    (folder,) = tmp_path.iterdir()
    return record, load_model(folder)


def weights(trained):
    return trained.network.state_dict()


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


class Rows(Dataset):
    """Rows as a mapping, as Hugging Face's data sets have them; noise is added to each."""

    def __init__(self, blur=0.0):
        self.points, self.labels = two_clouds()
        self.blur = blur

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"x": self.points[index] + self.blur * torch.randn(5), "label": int(self.labels[index])}


FORMS = {
    "tensors": lambda: TensorDataset(*two_clouds()),
    "mappings": Rows,
    "pairs": lambda: list(zip(*two_clouds(), strict=True)),
    "arrays": lambda: [(x.numpy(), np.int64(y)) for x, y in zip(*two_clouds(), strict=True)],
    "numbers": lambda: [{"labels": int(y), "row": x.tolist()} for x, y in zip(*two_clouds(), strict=True)],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_data_is_the_same_run(tmp_path, form):
    expected, expected_model = run(tmp_path / "expected", TensorDataset(*two_clouds()))
    record, model = run(tmp_path / "found", FORMS[form]())
    assert_equal(weights(model), weights(expected_model))
    assert record.figures["test"] == expected.figures["test"]
    assert [path.name for path in (tmp_path / "found").iterdir()] == [
        path.name for path in (tmp_path / "expected").iterdir()
    ]


def test_images_from_python_are_trained_on_as_those_of_the_catalog(tmp_path):
    images, tested = load_data("digits"), load_data("digits", split="test")
    own = OwnData(TensorDataset(images.images, images.labels), test=TensorDataset(tested.images, tested.labels))
    settings = {**QUICK, "epochs": 1, "noise": "uniform:0.2", "audit": True}
    spec = default_spec("digits")
    for key, value in settings.items():
        spec = with_value(spec, key, value)
    expected = train(spec, out=tmp_path / "expected", data_dir=Path("nowhere"))
    record, model = run(tmp_path / "found", own, replace(spec, data=make_spec().data))
    (folder,) = (tmp_path / "expected").iterdir()
    assert_equal(weights(model), weights(load_model(folder)))
    assert record.figures["test"] == expected.figures["test"]


def test_what_a_data_set_draws_at_random_follows_from_the_seed(tmp_path):
    _, alone = run(tmp_path / "alone", Rows(blur=0.5))
    _, by_workers = run(tmp_path / "by workers", Rows(blur=0.5), workers=2)
    assert_equal(weights(alone), weights(by_workers))


def test_other_data_is_another_run_unless_it_is_named(tmp_path):
    points, labels = two_clouds()
    changed = labels.clone()
    changed[:2] = 1 - changed[:2]
    versions = [TensorDataset(points, labels), TensorDataset(points, changed), TensorDataset(points + 1, labels)]
    ids = [with_own_data(make_spec(), data)[0].id for data in versions]
    assert len(set(ids)) == 3
    named = make_spec(**{"data.path": "clouds, version 2"})
    assert {with_own_data(named, data)[0].id for data in versions} == {named.id}


def test_a_finished_run_is_found_again(tmp_path):
    first, _ = run(tmp_path, Rows())
    again, _ = run(tmp_path, Rows())
    assert again == first
    spec, _ = with_own_data(make_spec(), Rows())
    assert RunFolder.of(spec, tmp_path).finished()


def test_labels_that_are_given_are_not_asked_for_item_by_item():
    class Counting(Rows):
        asked = 0

        def __getitem__(self, index):
            self.asked += 1
            return super().__getitem__(index)

    data = Counting()
    train_set, _ = OwnData(data, labels=data.labels, class_names=("low", "high")).load()
    assert data.asked == 0
    assert train_set.class_names == ("low", "high")
    OwnData(data).load()
    assert data.asked == len(data)


POINTS, LABELS = two_clouds(40)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "data has no items"),
        (iter([(1.0, 0)]), "must have a length and items by number, got list_iterator; a stream has neither"),
        (TensorDataset(POINTS, LABELS.float()), r"one class per item, .* got torch.float32"),
        (TensorDataset(POINTS, LABELS - 1), "counted from 0, got -1"),
        (TensorDataset(POINTS, torch.stack([LABELS, LABELS], 1)), r"shape \[40, 2\]"),
        (TensorDataset(POINTS, LABELS * 2), "no item has the class '1'"),
        (TensorDataset(POINTS, LABELS, LABELS), r"item 0 must be \(x, label\)"),
        ([{"x": 1.0, "z": 2.0, "label": 0}], "got x, z, label; wrap the data set"),
        ([{"x": 1.0}], "label or labels and one other key, got x"),
        ([("text", 0), ("words", 1)] * 20, "item .* is a str, which is no tensor"),
        (OwnData(TensorDataset(POINTS, LABELS), labels=[0, 1]), "for 40 items"),
        (OwnData(TensorDataset(POINTS, LABELS), class_names=["one"]), "names 1 classes, but there is a label 1"),
        ([(torch.zeros(3 if index == 35 else 2), index % 2) for index in range(40)], "crop, resize or pad"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_and_leaves_nothing(tmp_path, data, message):
    with pytest.raises((ValueError, TypeError), match=message):
        train(make_spec(), out=tmp_path / "runs", data_dir=Path("nowhere"), data=data)
    assert not list(tmp_path.glob("runs/*/model.safetensors"))


def test_spec_and_data_must_go_together(tmp_path):
    with pytest.raises(ValueError, match=r"data is missing: .* train\(spec, data=\.\.\.\)"):
        train(make_spec(), out=tmp_path, data_dir=tmp_path)
    with pytest.raises(ValueError, match=r"the spec trains on 'digits'; begin with default_spec\('dataset'\)"):
        train(default_spec("digits"), out=tmp_path, data_dir=tmp_path, data=Rows())


def test_commands_that_would_need_the_data_say_so(tmp_path):
    run(tmp_path / "runs", Rows(), make_spec(audit=True))
    (folder,) = (tmp_path / "runs").iterdir()
    (tmp_path / "photo.jpg").write_bytes(b"")
    for command in (["predict", folder, tmp_path / "photo.jpg"], ["evaluate", folder], ["audit", folder]):
        result = run_in_process(*command)
        assert result.exit_code == 1
        assert "a Dataset in Python" in result.stderr
