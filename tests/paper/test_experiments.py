"""The experiments at the paper's own size: recipes as the paper gives them, written out by hand."""

import hashlib
from dataclasses import replace

import pytest

from deepbilevel.rules.average import Sgd
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel_lab.losses import LabelSmoothing, Mixup, SoftBootstrap
from deepbilevel_lab.noise import NoiseSpec
from deepbilevel_lab.training.other_runs import needs
from deepbilevel_lab.training.schedules import Exponential, Linear, Phases, Steps
from deepbilevel_paper import EXPERIMENTS, Cell, find_experiment, runs_of
from deepbilevel_paper.estimate import sample_visits
from deepbilevel_paper.recipes import trained_images

SIZES = {
    "table1": 24,
    "figure-validation-ratio": 24,
    "figure-num-batches": 20,
    "figure-batch-size": 28,
    "figure-mu": 20,
    "pixel-permutation": 2,
    "noise-curves-cifarnet": 40,
    "noise-curves-inception": 40,
    "comparison-40": 20,
    "imagenet": 4,
    "clothing1m": 4,
    "voc2007": 10,
}
BASELINE = BilevelRule(mu=0.01, lam=1.0)


def cells(name, **wanted):
    return [
        cell
        for cell in find_experiment(name).cells()
        if all(getattr(cell, key) == value for key, value in wanted.items())
    ]


def spec_of(name, row, column):
    (cell,) = cells(name, row=row, column=column)
    return cell.spec


def test_the_papers_experiments_are_all_there():
    assert {name: len(experiment.cells()) for name, experiment in EXPERIMENTS.items()} == SIZES
    with pytest.raises(ValueError, match="unknown experiment 'tabel1'; did you mean 'table1'"):
        find_experiment("tabel1")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_places_and_runs_are_unique_and_figures_have_an_x(name):
    all_cells = cells(name)
    assert len({cell.spec.id for cell in all_cells}) == len(all_cells)
    assert len({(cell.row, cell.column, cell.x) for cell in all_cells}) == len(all_cells)
    assert len({cell.x is None for cell in all_cells}) == 1
    assert all(cell.spec.seed == 0 and cell.spec.threads == 1 and cell.spec.device == "cpu" for cell in all_cells)


def test_ids_of_runs_are_what_they_were_in_version_0_1():
    # Results that were recorded then are found by them. Whoever changes an experiment on purpose changes its line.
    digests = {
        name: hashlib.sha256(" ".join(cell.spec.id for cell in cells(name)).encode()).hexdigest()[:10]
        for name in EXPERIMENTS
    }
    assert digests == {
        "table1": "13792efbff",
        "figure-validation-ratio": "60278d4d7e",
        "figure-num-batches": "525497b538",
        "figure-batch-size": "9c9756f114",
        "figure-mu": "87ab96a3a6",
        "pixel-permutation": "f91a22151b",
        "noise-curves-cifarnet": "32d333901f",
        "noise-curves-inception": "3ac39bff42",
        "comparison-40": "a3acf598b2",
        "imagenet": "fac73b7f03",
        "clothing1m": "8329061a1b",
        "voc2007": "e4fe4310aa",
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_printed_results_find_their_cell(name):
    experiment = EXPERIMENTS[name]
    places = {(cell.row, cell.column) for cell in experiment.cells()}
    without = {"Patrini et al."}  # printed for comparison, of another paper
    for each in experiment.published:
        assert ((each.row, each.column) in places) != (each.row in without), each
    for cell in experiment.cells():
        assert cell.published is None or (cell.published.row, cell.published.column) == (cell.row, cell.column)


@pytest.mark.parametrize(
    ("column", "network", "lr", "decay", "noise"),
    [
        ("CifarNet, clean", "cifarnet", 0.01, None, None),
        ("CifarNet, 50 % noise", "cifarnet", 0.01, None, 0.5),
        ("Inception, clean", "inception", 0.1, 5e-4, None),
        ("Inception, 50 % noise", "inception", 0.1, 5e-4, 0.5),
    ],
)
def test_the_baseline_of_the_ablations(column, network, lr, decay, noise):
    spec = spec_of("table1", "Baseline", column)
    assert (spec.data.name, spec.network.name, spec.data.recipe) == ("cifar10", network, network)
    assert (spec.method, spec.shared_dropout) == (BASELINE, True)
    assert (spec.group.num_batches, spec.group.batch_size, spec.epochs) == (8, 16, 200)
    assert (spec.optimizer.name, spec.optimizer.lr) == ("SGD", lr)
    assert (spec.optimizer.arguments["momentum"], spec.optimizer.arguments.get("weight_decay")) == (0.9, decay)
    assert spec.schedule == Exponential(0.95)
    assert spec.noise == (noise and NoiseSpec("uniform", noise))
    assert trained_images(spec.data) // spec.group.size == 390
    assert sample_visits(spec) == 200 * 390 * 128


@pytest.mark.parametrize("column", ["CifarNet, clean", "Inception, 50 % noise"])
def test_each_row_of_the_ablations_differs_in_one_thing(column):
    baseline = spec_of("table1", "Baseline", column)
    assert spec_of("table1", "SGD", column) == replace(baseline, method=Sgd(), shared_dropout=False)
    assert spec_of("table1", "a) no L1", column) == replace(baseline, method=replace(BASELINE, normalize=False))
    assert spec_of("table1", "b) weights per layer", column) == replace(
        baseline, method=replace(BASELINE, per_layer=True)
    )
    assert spec_of("table1", "c) sampling", column) == replace(baseline, group=replace(baseline.group, matched=False))
    assert spec_of("table1", "d) dropout", column) == replace(baseline, shared_dropout=False)


def along(name, column="CifarNet, clean"):
    return {cell.x: cell.spec for cell in cells(name, column=column)}


def test_the_figure_of_ablations_varies_one_thing_at_a_time():
    baseline = spec_of("table1", "Baseline", "CifarNet, clean")
    ratios = along("figure-validation-ratio")
    assert ratios[0.0] == baseline
    assert [spec.group.holdout for spec in ratios.values()] == [None, 0.1, 0.2, 0.3, 0.4, 0.5]
    numbers = along("figure-num-batches")
    assert {x: (s.group.num_batches, s.group.batch_size) for x, s in numbers.items()} == {
        2: (2, 64),
        4: (4, 32),
        8: (8, 16),
        16: (16, 8),
        32: (32, 4),
    }
    assert numbers[8] == baseline
    sizes = along("figure-batch-size")
    assert {x: (s.group.num_batches, s.group.batch_size) for x, s in sizes.items()} == {
        x: (8, x) for x in (1, 2, 4, 8, 16, 32, 64)
    }
    assert sizes[16] == baseline
    mus = along("figure-mu")
    assert mus[0.01] == baseline
    assert [spec.method.mu for spec in mus.values()] == list(mus) == [0.0001, 0.001, 0.01, 0.1, 1.0]
    for spec in (*ratios.values(), *mus.values()):
        assert (
            replace(spec, group=replace(spec.group, holdout=None), method=replace(spec.method, mu=baseline.method.mu))
            == baseline
        )


def test_comparisons_of_mini_batches_keep_the_visits_and_what_the_paper_says_of_steps():
    numbers, sizes = along("figure-num-batches"), along("figure-batch-size")
    assert {trained_images(spec.data) // spec.group.size for spec in numbers.values()} == {390}
    assert {spec.schedule for spec in sizes.values()} == {Exponential(0.95)}  # per epoch, however many steps it has
    assert {spec.epochs for spec in sizes.values()} == {200}
    assert [trained_images(spec.data) // spec.group.size for spec in sizes.values()] == [
        6250,
        3125,
        1562,
        781,
        390,
        195,
        97,
    ]
    for spec in sizes.values():
        assert sample_visits(spec) == pytest.approx(200 * 50_000, rel=0.01)


def test_permuted_pixels():
    sgd, bilevel = (cell.spec for cell in cells("pixel-permutation"))
    assert (sgd.method, bilevel.method, bilevel.shared_dropout) == (Sgd(), BilevelRule(), False)
    assert replace(sgd, method=bilevel.method) == bilevel
    assert (bilevel.network.name, bilevel.data.recipe, bilevel.epochs) == ("inception", "pixel-permutation", 200)
    assert bilevel.group.size == 128


@pytest.mark.parametrize("network", ["cifarnet", "inception"])
def test_noise_curves(network):
    name = f"noise-curves-{network}"
    for column, data in (("CIFAR-10", "cifar10"), ("CIFAR-100", "cifar100")):
        for row, method in (("SGD", Sgd()), ("Bilevel", BilevelRule())):
            curve = cells(name, row=row, column=column)
            assert [cell.x for cell in curve] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
            assert [cell.spec.noise and cell.spec.noise.rate for cell in curve] == [None, *(c.x for c in curve[1:])]
            for spec in (cell.spec for cell in curve):
                assert (spec.data.name, spec.network.name, spec.method) == (data, network, method)
                assert not spec.shared_dropout
                assert (spec.group.num_batches, spec.group.batch_size, spec.epochs) == (8, 8, 100)
                assert spec.schedule == Exponential(0.95)
                assert trained_images(spec.data) // spec.group.size == 781


def test_the_comparison_at_forty_percent():
    for column, data, recipe in (("CIFAR-10", "cifar10", "preact"), ("CIFAR-100", "cifar100", "preact-cifar100")):
        sgd = spec_of("comparison-40", "SGD", column)
        assert (sgd.data.name, sgd.network.name, sgd.data.recipe) == (data, "preact_resnet18", recipe)
        assert (sgd.method, sgd.noise, sgd.epochs) == (Sgd(), NoiseSpec("uniform", 0.4), 200)
        assert (sgd.schedule, sgd.optimizer.lr) == (Steps((0.5, 0.75), 0.1), 0.1)
        assert (sgd.optimizer.arguments, sgd.group.size) == ({"momentum": 0.9, "weight_decay": 1e-4}, 128)
        bilevel = BilevelRule()
        rows = {
            "Reed et al.": {"loss": SoftBootstrap(0.95)},
            "Zhang et al. (mixup)": {"mixing": Mixup()},
            "Dropout, keep 0.3": {"network": replace(sgd.network, dropout=0.7)},
            "Label smoothing 0.1": {"loss": LabelSmoothing(0.1)},
            "Bilevel": {"method": bilevel},
            "Bilevel + mixup": {"method": bilevel, "mixing": Mixup()},
        }
        for row, settings in rows.items():
            assert spec_of("comparison-40", row, column) == replace(sgd, **settings)


def test_imagenet_takes_its_noise_from_the_clean_run():
    clean, noisy = ({cell.row: cell for cell in cells("imagenet", column=column)} for column in ("clean", "44 % noise"))
    sgd = clean["SGD"].spec
    assert (sgd.network.name, sgd.schedule, sgd.epochs) == ("alexnet", Phases(5, 250.0), 90)
    assert (sgd.optimizer.lr, sgd.group.num_batches, sgd.group.batch_size) == (0.01, 8, 16)
    for row in ("SGD", "Bilevel"):
        assert noisy[row].before == (sgd,)
        assert needs(noisy[row].spec) == [sgd.id]
        published_labels = replace(noisy[row].spec, data=replace(noisy[row].spec.data, labels=None))
        assert published_labels == clean[row].spec
    assert clean["Bilevel"].spec == replace(sgd, method=BilevelRule())


def test_clothing1m_is_tuned_on_clean_labels_from_where_the_noisy_ones_led():
    for row in ("SGD", "Bilevel"):
        noisy = spec_of("clothing1m", row, "noisy labels")
        (cell,) = cells("clothing1m", row=row, column="then clean labels")
        assert noisy.network.weights == "data:resnet50-0676ba61.pth"
        assert (noisy.data.train_split, cell.spec.data.train_split) == ("noisy_train", "clean_train")
        assert (cell.before, needs(cell.spec)) == ((noisy,), [noisy.id])
        for spec in (noisy, cell.spec):
            assert (spec.group.num_batches, spec.group.batch_size, spec.epochs) == (4, 8, 10)
            assert (spec.schedule, spec.optimizer.lr) == (Steps((0.5,), 0.1), 0.001)
            assert spec.optimizer.arguments["weight_decay"] == 1e-3


def test_voc_takes_fractions_of_trainval():
    for row in ("SGD", "Bilevel"):
        curve = cells("voc2007", row=row)
        assert {cell.x: cell.spec.data.limit for cell in curve} == {
            0.1: 501,
            0.25: 1253,
            0.5: 2506,
            0.75: 3758,
            1: 5011,
        }
        for spec in (cell.spec for cell in curve):
            assert (spec.network.name, spec.data.view, spec.data.test_crops) == ("alexnet", "random-area", 10)
            assert (spec.group.num_batches, spec.group.batch_size, spec.epochs) == (4, 16, 1000)
            assert (spec.schedule, spec.optimizer.lr) == (Linear(), 0.01)


def test_a_seed_reaches_the_runs_that_are_needed():
    (cell,) = cells("clothing1m", row="Bilevel", column="then clean labels")
    other = cell.changed(seed=3, device="cuda")
    assert [(spec.seed, spec.device) for spec in (*other.before, other.spec)] == [(3, "cuda")] * 2
    assert needs(other.spec) == [other.before[0].id]
    assert other.before[0].id != cell.before[0].id
    assert other.changed(seed=0, device="cpu") == cell


def test_runs_come_once_and_after_those_they_need():
    runs = runs_of(find_experiment("imagenet").cells(), seeds=(0, 1))
    ids = [spec.id for spec in runs]
    assert len(set(ids)) == len(ids) == 8  # the clean run that labels is one of the table's own
    for place, spec in enumerate(runs):
        assert all(needed in ids[:place] for needed in needs(spec))
    backwards = runs_of(reversed(find_experiment("clothing1m").cells()))
    assert [spec.data.train_split for spec in backwards] == ["noisy_train", "clean_train"] * 2


def test_a_cell_without_the_run_it_needs_is_refused():
    (cell,) = cells("imagenet", row="SGD", column="44 % noise")
    with pytest.raises(ValueError, match=f"before lacks run {cell.before[0].id}, which imagenet-run-"):
        Cell("SGD", "44 % noise", cell.spec)
