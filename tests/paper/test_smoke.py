"""Every experiment trains to its end at the scale ``smoke``, on synthetic images: none can rot."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from deepbilevel_lab.noise import load_noisy_labels
from deepbilevel_lab.training import RunFolder, train
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.loop import TrainingLoop
from deepbilevel_lab.training.other_runs import RunsBeside
from deepbilevel_paper import EXPERIMENTS, find_experiment, runs_of
from deepbilevel_paper.made_data import make_data
from deepbilevel_paper.needed_data import specs_of


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return where runs go and where synthetic data is; both are shared, so what is the same run is trained once."""
    return tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("data")


def all_but_the_middle(cells):
    """Return the cells of every row and column; of what a figure varies, the least and the most."""
    places = {}
    for cell in cells:
        places.setdefault((cell.row, cell.column), []).append(cell)
    for along in places.values():
        along.sort(key=lambda cell: cell.x or 0)
        yield from along if len(along) == 1 else (along[0], along[-1])


# The smallest on CIFAR and those on other data; the rest trains the same networks in more ways.
QUICK = {"pixel-permutation", "imagenet", "clothing1m", "voc2007"}


# The paper tries mini-batches of one image with Inception too, and says what comes of it.
@pytest.mark.filterwarnings("ignore:group.batch_size is 1 and the network has BatchNorm")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EXPERIMENTS]
)
def test_every_row_and_column_comes_to_its_end(name, folders):
    out, data_dir = folders
    experiment = find_experiment(name)
    make_data(data_dir, {spec.data.name for spec in specs_of(experiment)})
    chosen = list(all_but_the_middle(experiment.cells("smoke")))
    for spec in runs_of(chosen):
        record = train(spec, out=out, data_dir=data_dir)
        assert record.status == "done"
        assert record.images.train == spec.data.limit
        assert 0 <= record.final.test <= 100
        assert record.id == spec.id
    noisy = [cell for cell in chosen if cell.spec.noise is not None or cell.spec.data.labels is not None]
    for cell in noisy:
        assert RunFolder.of(cell.spec, out).read_record().final.train_clean is not None


def test_a_networks_mistakes_are_the_labels_of_imagenet_and_the_same_whoever_asks(folders, tmp_path):
    out, data_dir = folders
    make_data(data_dir, ["imagenet"])
    sgd, bilevel = (cell for cell in find_experiment("imagenet").cells("smoke") if cell.column == "44 % noise")
    (labeller,) = sgd.before
    train(labeller, out=out, data_dir=data_dir)
    train(labeller, out=tmp_path, data_dir=data_dir)
    labels = [
        build(cell.spec, data_dir, runs=RunsBeside(runs, data_dir)).train.data.labels
        for runs in (out, tmp_path)
        for cell in (bilevel, sgd)
    ]
    assert all(torch.equal(labels[0], each) for each in labels)
    noisy, provenance = load_noisy_labels(RunFolder.of(labeller, out).labels_file)
    assert (noisy.labels == labels[0].numpy()).all()
    assert 0 < noisy.rate < 1
    assert labeller.id in provenance.note


def test_a_network_can_learn_from_made_images(folders):
    _, data_dir = folders
    make_data(data_dir, ["cifar10"])
    (cell, *_) = find_experiment("noise-curves-cifarnet").cells("smoke")
    spec = replace(cell.spec, epochs=12, evaluate_every=12, data=replace(cell.spec.data, limit=100))
    loop = TrainingLoop(build(spec, data_dir))
    for _ in loop.run():
        pass
    # A network that guesses has a loss of log(10), 2.3; this one ends below 0.1. Of the 20 test images a guess gets 2,
    # give or take 1.3; this one gets all. Images that do not show their class, or no steps, leave it at the guesses.
    assert loop.history[-1].loss < 1
    assert loop.history[-1].test > 50


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("pixel-permutation", "Bilevel"),
        ("comparison-40", "Dropout, keep 0.3"),
        pytest.param("voc2007", "Bilevel", marks=pytest.mark.slow),
        pytest.param("imagenet", "Bilevel", marks=pytest.mark.slow),
        pytest.param("clothing1m", "Bilevel", marks=pytest.mark.slow),
    ],
)
def test_the_papers_own_networks_take_a_step(name, row, folders, tmp_path):
    """At the scale ``smoke`` another network stands in for the large ones; this is one step of theirs."""
    _, data_dir = folders
    make_data(data_dir, {spec.data.name for spec in specs_of(find_experiment(name))})
    cell = next(cell for cell in find_experiment(name).cells() if cell.row == row)
    group = replace(cell.spec.group, num_batches=2, batch_size=2, on_rare="repeat")
    spec = replace(cell.spec, data=replace(cell.spec.data, limit=40), group=group)
    if spec.network.weights is not None:
        spec = replace(spec, network=replace(spec.network, weights=None))
    loop = TrainingLoop(build(spec, data_dir))
    before = [parameter.detach().clone() for parameter in loop.parts.model.parameters()]
    for _ in islice(loop.run(), 1):
        assert loop.report.applied
    after = list(loop.parts.model.parameters())
    assert all(bool(torch.isfinite(parameter).all()) for parameter in after)
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
