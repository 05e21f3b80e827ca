"""A run as a value: what it may be, what it may not, and that its id and its files never change unnoticed."""

import json
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel.rules.agreement_filter import AgreementFilter
from deepbilevel.rules.and_mask import AndMask
from deepbilevel.rules.average import Sgd, Uniform
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.rules.cross_validated import CrossValidatedRule
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.gsnr import Gsnr
from deepbilevel.rules.k_fold import KFoldBilevel
from deepbilevel.rules.median_of_three import MedianOfThree
from deepbilevel.rules.momentum import MomentumBilevel
from deepbilevel_lab.data.catalog import DATA_SETS
from deepbilevel_lab.losses import LOSSES, GeneralizedCrossEntropy, LabelSmoothing, Mixup
from deepbilevel_lab.networks.catalog import NETWORKS
from deepbilevel_lab.noise import NoiseSpec
from deepbilevel_lab.specs import SpecError, canonical_json, from_plain, to_plain, with_value
from deepbilevel_lab.training.defaults import best_device, default_spec, usual_threads
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.optimizers import OptimizerSpec
from deepbilevel_lab.training.schedules import Constant, Cosine, Exponential, Linear, Phases, Steps
from deepbilevel_lab.training.spec import GroupSpec, RunSpec
from deepbilevel_lab.training.spec_files import load_spec, save_spec
from tests.losses.tasks import PURE_LOSSES

INCEPTIONS = ("inception", "inception_half", "inception_zhang")
LARGE, SMALL = {"alexnet", "resnet50"}, {"cifarnet", *INCEPTIONS, "preact_resnet8", "preact_resnet18", "small_resnet"}
POSSIBLE = {
    "digits": {"digit_cnn", "mlp"},
    "cifar10": SMALL,
    "cifar100": SMALL,
    **dict.fromkeys(("voc2007", "imagenet", "clothing1m", "folder", "csv"), SMALL | LARGE),
}
IMAGES = [name for name, entry in DATA_SETS.items() if entry.holds == "images"]
PAIRS = [(data, network) for data in IMAGES for network in NETWORKS]
POSSIBLE_PAIRS = [(data, network) for data, network in PAIRS if network in POSSIBLE[data]]

GOLDEN = RunSpec(
    data={"name": "cifar10", "recipe": "cifarnet"},
    network="cifarnet",
    method=BilevelRule(mu=0.01),
    noise="uniform:0.5",
    optimizer=OptimizerSpec("SGD", 0.01, {"momentum": 0.9}),
    schedule="exponential",
    threads=2,
    seed=3,
)


def made(data, network):
    return default_spec(data, network, path="images" if DATA_SETS[data].own else None)


@pytest.fixture
def digits():
    return replace(default_spec("digits"), device="cpu", threads=1)


@pytest.mark.parametrize(("data", "network"), POSSIBLE_PAIRS)
def test_every_default_comes_back_from_both_kinds_of_file(data, network, tmp_path):
    spec = made(data, network)
    for name in ("run.json", "run.toml"):
        save_spec(spec, tmp_path / name)
        loaded = load_spec(tmp_path / name)
        assert loaded == spec
        assert loaded.id == spec.id


@pytest.mark.parametrize(("data", "network"), sorted(set(PAIRS) - set(POSSIBLE_PAIRS)))
def test_images_that_do_not_fit_are_refused_with_the_networks_that_do(data, network):
    with pytest.raises(SpecError, match=f"network {network} takes images of .* but {data} by the recipe") as caught:
        made(data, network)
    offered = str(caught.value).rpartition(": ")[2].split(", ")
    assert data not in ("digits", "cifar10", "cifar100") or set(offered) == POSSIBLE[data]


def test_defaults_are_the_papers():
    found = {network: made(data, network) for data, network in POSSIBLE_PAIRS if data != "voc2007"}
    rates = {network: (spec.optimizer.lr, spec.schedule, spec.epochs) for network, spec in found.items()}
    assert rates == {
        "digit_cnn": (0.1, Constant(), 50),
        "mlp": (0.02, Cosine(), 50),
        "cifarnet": (0.01, Exponential(0.95), 100),
        **dict.fromkeys(INCEPTIONS, (0.1, Exponential(0.95), 100)),
        "preact_resnet8": (0.1, Cosine(), 100),
        "preact_resnet18": (0.1, Steps((0.5, 0.75), 0.1), 200),
        "alexnet": (0.01, Phases(5, 250.0), 90),
        "resnet50": (0.001, Steps((0.5,), 0.1), 10),
        "small_resnet": (0.05, Cosine(0.05), 100),
    }
    voc = made("voc2007", "alexnet")
    assert (voc.schedule, voc.epochs, voc.data.view, voc.data.test_crops) == (Linear(), 1000, "random-area", 10)
    assert made("voc2007", "cifarnet").data.test_crops == 1  # crops of thumbnails are all the same
    assert made("cifar100", "preact_resnet18").data.recipe == "preact-cifar100"
    published = {network: made(data, network) for data, network in POSSIBLE_PAIRS if not DATA_SETS[data].own}
    assert {spec.method for spec in published.values()} == {BilevelRule()}
    usual = {"digits": "digit_cnn", "voc2007": "alexnet", "imagenet": "alexnet", "clothing1m": "resnet50"}
    usual |= {"folder": "small_resnet", "csv": "small_resnet"}
    for data in IMAGES:
        assert default_spec(data, path="images").network.name == usual.get(data, "cifarnet")


def test_defaults_fit_the_machine(digits):
    assert default_spec("digits") == replace(digits, device=best_device(), threads=usual_threads())
    assert 1 <= usual_threads() <= 4


def test_the_id_of_a_fixed_spec_is_what_it_always_was():
    # Ids name folders of finished runs. Whoever changes this one gives every one of them another name.
    assert GOLDEN.id == "e24137f94c"
    assert GOLDEN.name == "cifar10-cifarnet-bilevel-uniform-0.5"


# Taken from version 0.1: what it wrote under `method`, and the id it gave the run on digits with uniform:0.5.
BILEVEL_OF_0_1 = {"kind": "bilevel", "mu": 0.01, "lam": 1.0, "normalize": True, "per_layer": False}
BILEVEL_OF_0_1 |= {"solver": "diagonal", "weighting": "agreement", "validation": "first", "validation_momentum": 0.9}
BILEVEL_OF_0_1 |= {"shared_dropout": False}
TUNED = {"mu": 0.1, "lam": 2.0, "normalize": False, "per_layer": True, "weighting": "cosine"}
OF_0_1 = [
    (BILEVEL_OF_0_1, BilevelRule(), False, "13bf5e1d95"),
    (BILEVEL_OF_0_1 | {"shared_dropout": True}, BilevelRule(), True, "6bdf7166b7"),
    (BILEVEL_OF_0_1 | TUNED, BilevelRule(**TUNED), False, "731c6e5063"),
    (BILEVEL_OF_0_1 | {"solver": "exact"}, ExactBilevel(), False, "3d9264cca8"),
    (
        BILEVEL_OF_0_1 | {"solver": "exact", "mu": 0.1, "shared_dropout": True},
        *(ExactBilevel(mu=0.1), True, "8f11346fed"),
    ),
    (BILEVEL_OF_0_1 | {"validation": "k-fold"}, KFoldBilevel(), False, "8eb715c4c9"),
    (
        BILEVEL_OF_0_1 | {"validation": "k-fold", "weighting": "cosine"},
        *(KFoldBilevel(weighting="cosine"), False, "7edaeea7ca"),
    ),
    (BILEVEL_OF_0_1 | {"validation": "momentum"}, MomentumBilevel(), False, "8f57807d45"),
    (
        BILEVEL_OF_0_1 | {"validation": "momentum", "validation_momentum": 0.5, "weighting": "absolute"},
        *(MomentumBilevel(momentum=0.5, weighting="absolute"), False, "318aa1b0b0"),
    ),
    ({"kind": "sgd"}, Sgd(), False, "f07fbe22d1"),
    ({"kind": "uniform", "use_validation": False}, Uniform(), False, "e15309f964"),
    ({"kind": "uniform", "use_validation": True}, Uniform(use_validation=True), False, "e8fc1c3481"),
    (
        {"kind": "cross-validated", "block": "parameter", "shrink": "gradient"},
        *(CrossValidatedRule(), False, "0381b760ba"),
    ),
    ({"kind": "and-mask", "threshold": 0.5}, AndMask(), False, "40f3f0973b"),
    ({"kind": "median-of-three"}, MedianOfThree(), False, "e206fae1ef"),
    ({"kind": "gsnr", "floor": 0.1}, Gsnr(), False, "192ee0e5c9"),
    ({"kind": "agreement-filter", "max_cosine_distance": 0.97}, AgreementFilter(), False, "8f2f8afb93"),
]


@pytest.mark.parametrize(("written", "rule", "shared_dropout", "id_then"), OF_0_1)
def test_a_run_of_version_0_1_is_read_and_keeps_its_id(digits, written, rule, shared_dropout, id_then):
    noisy = with_value(digits, "noise", "uniform:0.5")
    plain = {key: value for key, value in to_plain(noisy).items() if key != "shared_dropout"}
    read = from_plain(RunSpec, {**plain, "method": written})
    assert (read.method, read.shared_dropout) == (rule, shared_dropout)
    made = replace(noisy, method=rule, shared_dropout=shared_dropout)
    assert made == read
    assert made.id == read.id == id_then


RESULTS = Path(__file__).parents[2] / "results"


def test_every_committed_record_is_read_and_has_the_id_of_its_folder():
    records = sorted(RESULTS.rglob("record.json"))
    assert len(records) > 100
    for path in records:
        record = json.loads(path.read_text())
        spec = from_plain(RunSpec, record["spec"])
        assert spec.id == record["id"], path
        assert path.parent.name.endswith(f"-{spec.id}"), path
        assert RunFolder.of(spec, path.parents[1]).path == path.parent, path


def test_methods_that_only_version_0_1_had_are_refused_by_name(digits):
    for choices in ({"solver": "exact", "validation": "momentum"}, {"solver": "exact", "validation": "k-fold"}):
        with pytest.raises(SpecError, match=r"solver 'exact' with validation .* are now bilevel, exact, k-fold, momen"):
            from_plain(RunSpec, {**to_plain(digits), "method": BILEVEL_OF_0_1 | choices})


def test_a_setting_as_version_0_1_named_it_leaves_the_others_alone(digits):
    spec = replace(with_value(digits, "method.mu", 0.1), shared_dropout=True)
    assert with_value(spec, "method.solver", "exact") == replace(spec, method=ExactBilevel(mu=0.1))
    assert with_value(spec, "method.shared_dropout", False) == replace(spec, shared_dropout=False)


def test_the_id_depends_on_no_order_and_on_no_way_of_writing_numbers():
    plain = to_plain(GOLDEN)
    turned = {key: dict(reversed(value.items())) if isinstance(value, dict) else value for key, value in plain.items()}
    assert from_plain(RunSpec, dict(reversed(turned.items()))).id == GOLDEN.id
    for key in ("method.lam", "optimizer.lr", "optimizer.arguments.momentum"):
        one, other = (with_value(GOLDEN, key, value) for value in (1, 1.0))
        assert one == other
        assert one.id == other.id


VARIANTS = [
    *({"method": Sgd()}, {"method": Uniform()}, {"method": Uniform(use_validation=True)}),
    *({"method": BilevelRule(mu=0.02)}, {"method": BilevelRule(per_layer=True)}, {"noise": None}),
    *({"method": BilevelRule(weighting=name)} for name in ("absolute", "clipped", "random", "cosine")),
    *({"method": kind} for kind in ("exact", "k-fold", "momentum")),
    *({"method": ExactBilevel(mu=0.1)}, {"method": KFoldBilevel(weighting="cosine")}),
    *({"method": MomentumBilevel(momentum=0.5)}, {"shared_dropout": True}),
    *({"method": "and-mask"}, {"method": AndMask(0.6)}, {"method": "median-of-three"}, {"method": "gsnr"}),
    *({"method": Gsnr(0.2)}, {"method": "agreement-filter"}, {"method": AgreementFilter(1.0)}),
    *({"noise": NoiseSpec("pair", 0.5)}, {"noise": NoiseSpec("uniform", 0.4)}, {"optimizer": OptimizerSpec("Adam")}),
    *({"schedule": Constant()}, {"schedule": Exponential(0.9)}, {"group": GroupSpec(num_batches=4)}),
    *({"group": GroupSpec(holdout=0.1)}, {"group": GroupSpec(matched=False)}, {"epochs": 7}, {"seed": 4}),
    *({"device": "cuda"}, {"precision": "bfloat16"}, {"threads": 3}, {"evaluate_every": 2}, {"zeroed_steps": 5}),
    *({"mixing": Mixup()}, {"mixing": Mixup(0.2)}, {"passes": "joined"}),
    *({"weight_averaging": 0.9}, {"weight_averaging": 0.99}, {"audit": True}),
    *({"loss": LabelSmoothing()}, {"loss": LabelSmoothing(0.2)}, {"loss": GeneralizedCrossEntropy()}),
    {"network": {"name": "cifarnet", "weights": "a.safetensors"}},
    {"network": {"name": "cifarnet", "dropout": 0.7}},
    {"data": {"name": "cifar10", "recipe": "cifarnet", "limit": 100}},
]


def test_every_variant_has_an_id_of_its_own_and_survives_its_files(tmp_path):
    specs = [GOLDEN, *(replace(GOLDEN, **variant) for variant in VARIANTS)]
    assert {name for variant in VARIANTS for name in variant} == {each.name for each in fields(RunSpec)}
    assert len({spec.id for spec in specs}) == len(set(specs)) == len(specs)
    for spec in specs:
        for name in ("run.json", "run.toml"):
            save_spec(spec, tmp_path / name)
            assert load_spec(tmp_path / name) == spec


METHODS = st.one_of(
    st.just(Sgd()),
    st.builds(Uniform, st.booleans()),
    st.builds(
        BilevelRule,
        mu=st.floats(0, 10),
        lam=st.floats(1e-6, 1e6),
        normalize=st.booleans(),
        per_layer=st.booleans(),
        weighting=st.sampled_from(["agreement", "absolute", "clipped", "random", "cosine"]),
    ),
    st.builds(ExactBilevel, st.floats(0, 10), st.floats(1e-6, 1e6), st.booleans(), st.booleans()),
    st.builds(KFoldBilevel, mu=st.floats(0, 10), weighting=st.sampled_from(["agreement", "cosine"])),
    st.builds(MomentumBilevel, momentum=st.floats(0, 0.999), per_layer=st.booleans()),
    st.builds(AndMask, st.floats(0, 1)),
    st.builds(Gsnr, st.floats(0, 1)),
    st.builds(AgreementFilter, st.floats(0, 2)),
)
FREE_LOSSES = st.one_of(  # those that go with everything else
    st.sampled_from([kind() for kind in PURE_LOSSES.values()]),
    st.builds(LabelSmoothing, st.floats(0, 0.99)),
    st.builds(GeneralizedCrossEntropy, st.floats(0.01, 1)),
)
SCHEDULES = st.one_of(
    st.sampled_from([Constant(), Linear()]),
    st.builds(Exponential, st.floats(0.01, 1)),
    st.builds(Steps, st.lists(st.floats(0.01, 0.99), max_size=3).map(tuple), st.floats(0.01, 1)),
    st.builds(Phases, st.integers(2, 10), st.floats(1, 1000)),
)
OPTIMIZERS = st.one_of(
    st.builds(OptimizerSpec, st.just("SGD"), st.floats(1e-6, 10), st.fixed_dictionaries({"momentum": st.floats(0, 1)})),
    st.builds(
        OptimizerSpec,
        st.just("Adam"),
        st.floats(1e-6, 10),
        st.fixed_dictionaries({}, optional={"betas": st.tuples(st.floats(0, 0.9), st.floats(0, 0.9))}),
        st.sampled_from(["weights", "all"]),
    ),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SPECS = st.builds(
    RunSpec,
    data=st.fixed_dictionaries(
        {"name": st.just("folder"), "path": TEXT, "view": st.just("thumbnail"), "recipe": st.just("cifarnet")},
        optional={"limit": st.integers(1), "test_rate": st.floats(0.01, 0.99)},
    ),
    network=st.just("cifarnet")
    | st.fixed_dictionaries({"name": st.just("cifarnet"), "weights": TEXT, "dropout": st.floats(0, 0.99)}),
    method=METHODS,
    loss=FREE_LOSSES,
    mixing=st.none() | st.builds(Mixup, st.floats(1e-6, 1000)),
    noise=st.none() | st.builds(NoiseSpec, st.sampled_from(["uniform", "pair"]), st.floats(0, 1)),
    optimizer=OPTIMIZERS,
    schedule=SCHEDULES,
    group=st.builds(GroupSpec, st.integers(2, 99), st.integers(2, 99), st.sampled_from(["shuffled", "stratified"])),
    epochs=st.integers(1, 10**9),
    seed=st.integers(0, 2**32 - 1),
)


@pytest.mark.parametrize("kind", LOSSES)
def test_any_loss_comes_back_from_files(digits, kind, tmp_path):
    spec = replace(digits, method=Sgd(), loss=LOSSES[kind]())
    for name in ("run.json", "run.toml"):
        save_spec(spec, tmp_path / name)
        assert load_spec(tmp_path / name) == spec


@given(spec=SPECS, shared=st.booleans())
def test_any_run_comes_back_from_plain_values_and_files(spec, shared, tmp_path_factory):
    spec = replace(spec, shared_dropout=shared and spec.method.splits)
    folder = tmp_path_factory.getbasetemp()
    loaded = [from_plain(RunSpec, to_plain(spec)), from_plain(RunSpec, json.loads(json.dumps(to_plain(spec))))]
    loaded.append(from_plain(RunSpec, json.loads(canonical_json(spec))))  # as version 0.1 would have written it
    if spec.epochs < 2**63 and (spec.data.limit or 0) < 2**63:
        for name in ("run.json", "run.toml"):
            save_spec(spec, folder / name)
            loaded.append(load_spec(folder / name))
    for each in loaded:
        assert each == spec
        assert each.id == spec.id
        assert hash(each) == hash(spec)
        assert to_plain(each) == to_plain(spec)


def test_a_run_is_frozen_all_the_way_down(digits):
    for owner, name in ((digits, "seed"), (digits.data, "name"), (digits.method, "mu"), (digits.group, "holdout")):
        with pytest.raises(FrozenInstanceError):
            setattr(owner, name, 1)


def test_making_a_run_draws_no_random_numbers():
    before = torch.get_rng_state()
    for data, network in POSSIBLE_PAIRS:
        made(data, network)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("method", "matched", "expected"),
    [
        *(("bilevel", None, True), ("uniform", None, True), ("sgd", None, False), ("cross-validated", None, False)),
        *(("bilevel", False, False), ("bilevel", True, True), ("sgd", False, False)),
    ],
)
def test_mini_batches_are_matched_where_the_method_compares_unless_told(digits, method, matched, expected):
    spec = with_value(with_value(digits, "method", method), "group.matched", matched)
    assert spec.matched is expected


def test_names_are_fit_for_folders(digits):
    assert digits.name == "digits-digit-cnn-bilevel"
    assert with_value(default_spec("cifar10"), "data.labels", "worst").name == "cifar10-worst-cifarnet-bilevel"
    smooth = with_value(with_value(digits, "loss", "label-smoothing"), "noise", "uniform:0.5")
    assert smooth.name == "digits-digit-cnn-bilevel-label-smoothing-uniform-0.5"
    assert with_value(smooth, "mixing", "mixup").name == "digits-digit-cnn-bilevel-label-smoothing-mixup-uniform-0.5"


@pytest.mark.parametrize(
    ("key", "value", "check"),
    [
        ("method", "uniform", lambda spec: spec.method == Uniform()),
        ("method.kind", "sgd", lambda spec: spec.method == Sgd()),
        ("method.weighting", "random", lambda spec: spec.method == BilevelRule(weighting="random")),
        ("method.mu", "0", lambda spec: spec.method == BilevelRule(mu=0.0)),
        ("noise", "pair:0.25", lambda spec: spec.noise == NoiseSpec("pair", 0.25)),
        ("loss", "label-smoothing", lambda spec: spec.loss == LabelSmoothing()),
        ("loss", '{"kind": "label-smoothing", "rate": 0.2}', lambda spec: spec.loss == LabelSmoothing(0.2)),
        ("mixing", "mixup", lambda spec: spec.mixing == Mixup()),
        ("mixing", '{"kind": "mixup", "alpha": 0.2}', lambda spec: spec.mixing == Mixup(0.2)),
        ("optimizer", "AdamW", lambda spec: spec.optimizer == OptimizerSpec("AdamW")),
        ("optimizer", '{"name": "Adam", "lr": 1e-3}', lambda spec: spec.optimizer == OptimizerSpec("Adam", 0.001)),
        ("optimizer.arguments.nesterov", "true", lambda spec: spec.optimizer.arguments["nesterov"] is True),
        ("schedule", "phases", lambda spec: spec.schedule == Phases()),
        ("schedule", '{"kind": "steps", "at": [0.25]}', lambda spec: spec.schedule == Steps(at=(0.25,))),
        ("group.holdout", "0.1", lambda spec: spec.group.holdout == 0.1),
        ("data.limit", "100", lambda spec: spec.data.limit == 100),
        ("network.dropout", "0.7", lambda spec: spec.network.dropout == 0.7),
        ("network.weights", "a.safetensors", lambda spec: spec.network.weights == "a.safetensors"),
    ],
)
def test_changes_as_people_write_them(digits, key, value, check):
    changed = with_value(digits, key, value)
    assert check(changed)
    assert changed.id != digits.id


def test_the_kind_of_noise_is_changed_without_its_rate(digits):
    noisy = with_value(digits, "noise", "uniform:0.3")
    assert with_value(noisy, "noise.kind", "pair").noise == NoiseSpec("pair", 0.3)
    assert with_value(noisy, "noise", None) == digits
