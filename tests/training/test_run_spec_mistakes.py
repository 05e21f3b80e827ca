"""Runs that cannot be: every mistake is refused when the spec is made, with the key, the value and the remedy."""

import json
from datetime import date

import numpy as np
import pytest
import torch

from deepbilevel_lab.specs import SpecError, from_plain, to_plain, with_value
from deepbilevel_lab.training.defaults import default_spec
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_lab.training.spec_files import load_spec, read_plain, save_spec

DIGITS = {"data": {"name": "digits"}, "network": "digit_cnn"}
CIFAR = {"data": {"name": "cifar10", "recipe": "cifarnet"}, "network": "cifarnet"}
VOC = {"data": {"name": "voc2007", "recipe": "imagenet", "view": "random-area"}, "network": "alexnet"}
OWN = {"data": {"name": "folder", "path": "images", "recipe": "cifarnet", "view": "thumbnail"}, "network": "cifarnet"}


def changed(base, **settings):
    """Return plain settings with others on top; ``data__limit`` stands for ``data.limit``."""
    plain = json.loads(json.dumps(base))
    for key, value in settings.items():
        owner, _, name = key.rpartition("__")
        (plain.setdefault(owner, {}) if owner else plain)[name] = value
    return plain


def test_the_starting_points_are_fine():
    for base in (DIGITS, CIFAR, VOC, OWN):
        assert from_plain(RunSpec, base).data.name == base["data"]["name"]


IMPOSSIBLE = [
    (changed(DIGITS, precision="float16"), "precision 'float16' needs a GPU; on a CPU take 'float32'"),
    (changed(DIGITS, method="sgd", group__holdout=0.1), "group.holdout is for methods that validate; sgd would waste"),
    (changed(DIGITS, method="sgd", group__matched=True), "group.matched is for methods that compare; sgd takes"),
    (changed(DIGITS, method="sgd", shared_dropout=True), "shared_dropout is for methods that compare; sgd takes"),
    (
        changed(DIGITS, method={"kind": "bilevel", "validation": "k-fold", "solver": "exact"}),
        "method: solver 'exact' with validation 'k-fold' is not a kind of method; .* bilevel, exact, k-fold, momentum",
    ),
    (
        changed(DIGITS, method={"kind": "bilevel", "weighting": "random", "solver": "exact"}),
        "unknown key 'method.weighting'; .*There are: method.mu, method.lam, method.normalize, method.per_layer",
    ),
    (
        changed(DIGITS, method={"kind": "k-fold", "weighting": "clipped"}),
        "unknown value of method.weighting 'clipped'; .*There are: agreement, cosine",
    ),
    (changed(DIGITS, method="k-fold", group__holdout=0.1), "group.holdout is for methods that validate; k-fold would"),
    (
        changed(DIGITS, method={"kind": "uniform", "use_validation": True}, group__holdout=0.1),
        "group.holdout only validates, but method.use_validation would learn from it; drop one",
    ),
    (
        changed(DIGITS, method="median-of-three", group__num_batches=2),
        "method median-of-three needs a group.num_batches of at least 3, got 2",
    ),
    (changed(DIGITS, method="and-mask", group__holdout=0.1), "group.holdout is for methods that validate; and-mask"),
    (changed(VOC, noise="uniform:0.5"), "noise uniform:0.5 needs one label per image; voc2007 has several"),
    (
        changed(VOC, loss="label-smoothing"),
        "loss label-smoothing needs one label per image; voc2007 has several, whose",
    ),
    (changed(VOC, mixing="mixup"), "mixing mixup needs one label per image; voc2007 has several, and some that do not"),
    (changed(DIGITS, mixing="mixup", group__batch_size=1), "mixing mixup blends .* group.batch_size 1 leaves .* alone"),
    (changed(VOC, loss="early-learning"), "loss early-learning needs one label per image; voc2007 has several"),
    (
        changed(DIGITS, loss="early-learning", mixing="mixup"),
        "mixing mixup does not go with loss early-learning, which remembers what was predicted .*; drop one",
    ),
    (
        changed(DIGITS, loss="co-teaching"),
        "method bilevel does not go with loss co-teaching, which trains two networks at once, .*; take method sgd, or",
    ),
    (
        changed(DIGITS, method="cross-validated", loss="auxiliary-images"),
        "method cross-validated does not go with loss auxiliary-images, which trains the last layer alone .* sgd, or",
    ),
    (
        changed(DIGITS, loss="noise-layer", epochs=1),
        "loss noise-layer needs an epoch to warm up and one after that, but loss.warm_up 0.5 of epochs 1 is 0",
    ),
    (changed(CIFAR, data__labels="worst", noise="pair:0.1"), "noise pair:0.1 would fall on data.labels 'worst'"),
    (changed(CIFAR, data__labels="worst", data__split="test"), "labels 'worst' are of the training images, not of"),
    (changed(CIFAR, data__labels="noisy_fine"), "unknown label set of cifar10 'noisy_fine'"),
    (changed(DIGITS, data__labels="worst"), "unknown label set of digits 'worst'; there is none"),
    (changed(DIGITS, data__split="val"), "unknown split of digits 'val'; .*There are: train, test"),
    (changed(DIGITS, data__path="images"), "path 'images' is for images of your own; digits is found in the data"),
    (changed(OWN, data__path=None), "path is missing: folder needs the place of your images"),
    (changed(OWN, data__view=None), "view is missing: folder holds image files; there are: random-area"),
    (changed(OWN, data__view="thumbnai"), "unknown view 'thumbnai'; did you mean 'thumbnail'"),
    (changed(DIGITS, data__view="thumbnail"), "view 'thumbnail' is for image files; the images of digits are all"),
    (changed(DIGITS, data__test_crops=2), "test_crops 2 is for image files; the images of digits are small"),
    (changed(OWN, data__test_crops=2), "test_crops 2 would all be the same; thumbnails are not cropped"),
    (changed(DIGITS, network="cifarnet"), "network cifarnet takes images of 3x28x28, but digits by the recipe 'none'"),
    (
        changed(CIFAR, network={"name": "resnet50", "dropout": 0.5}),
        "network: dropout 0.5 has no place in resnet50; networks with dropout: alexnet, cifarnet, digit_cnn",
    ),
    (changed(CIFAR, data__recipe="inception"), "cifarnet takes images of 3x28x28, but .* 'inception' gives 3x29x29"),
    (changed(DIGITS, data__recipe="cifarnet"), "digit_cnn takes .* 'cifarnet' cannot be had: .*"),
    (changed(OWN, network="alexnet", data__recipe="imagenet"), "alexnet takes images of 3x227x227, .* gives 3x32x32"),
    (changed(OWN, data__train_figures="split"), "train_figures 'split' would be of the images too that are set aside"),
    (changed(CIFAR, data__train_figures="split", data__labels="worst"), "published labels, and labels are 'worst'"),
    (changed(DIGITS, data__train_figures="split", noise="uniform:0.5"), "makes labels .* wrong .*; take 'trained'"),
]

OUT_OF_RANGE = [
    *(
        (changed(DIGITS, method={"kind": "momentum", "momentum": value}), "method: momentum must lie in 0 .. 1, got")
        for value in (-0.1, 1)
    ),
    (changed(DIGITS, method={"kind": "and-mask", "threshold": 1.5}), "method: threshold must lie in 0 .. 1, got 1.5"),
    (changed(DIGITS, method={"kind": "gsnr", "floor": -1}), "method: floor must lie in 0 .. 1, got -1.0; its authors"),
    (
        changed(DIGITS, method={"kind": "agreement-filter", "max_cosine_distance": 3}),
        "method: max_cosine_distance must lie in 0 .. 2, got 3.0; its authors recommend",
    ),
    *((changed(DIGITS, **{key: 0}), f"{key} must be at least 1, got 0") for key in ("epochs", "threads")),
    *(
        (changed(DIGITS, **{key: -1}), f"{key} must be at least 1, got -1")
        for key in ("evaluate_every", "zeroed_steps")
    ),
    *((changed(DIGITS, **{f"data__{key}": 0}), f"{key} must be at least 1, got 0") for key in ("limit", "test_limit")),
    (changed(VOC, data__test_crops=0), "test_crops must be at least 1, got 0"),
    (changed(OWN, data__test_rate=0), "test_rate must lie between 0 and 1, got 0.0"),
    (changed(OWN, data__test_rate=1), "test_rate must lie between 0 and 1, got 1.0"),
    (changed(DIGITS, seed=-1), r"seed must lie in 0 .. 2\*\*32 - 1, got -1"),
    (changed(DIGITS, seed=2**32), r"seed must lie in 0 .. 2\*\*32 - 1, got 4294967296"),
    (changed(DIGITS, group__num_batches=1), "num_batches must be at least 2, or nothing could be compared, got 1"),
    (changed(DIGITS, group__batch_size=0), "batch_size must be at least 1, got 0"),
    (changed(DIGITS, group__holdout=1.0), "holdout must be a fraction between 0 and 1, got 1.0"),
    (changed(DIGITS, group__holdout=0), "holdout must be a fraction between 0 and 1, got 0.0"),
    (changed(DIGITS, method={"kind": "bilevel", "mu": -1}), "method: mu must be finite and not negative, got -1.0"),
    (changed(DIGITS, method={"kind": "bilevel", "lam": 0}), "method: lam must be positive and finite, got 0.0"),
    (changed(DIGITS, loss={"kind": "label-smoothing", "rate": 1}), "loss: rate must lie in 0 .. 1, .*, got 1.0"),
    (
        changed(DIGITS, loss={"kind": "forward-correction", "transition": [[1, 0], [1]]}),
        "loss: transition must have as many columns as rows, one for each class, got 2 rows of .1, 2.",
    ),
    (changed(DIGITS, mixing={"kind": "mixup", "alpha": 0}), "mixing: alpha must be more than 0 .*, got 0.0"),
    (changed(DIGITS, mixing={"kind": "mixup", "alpha": 2e3}), "mixing: alpha must be .* at most 1000, .*, got 2000.0"),
    *(
        (changed(DIGITS, network={"name": "digit_cnn", "dropout": rate}), f"network: dropout must be .*, got {rate}")
        for rate in (-0.1, 1.0)
    ),
    (changed(DIGITS, noise="uniform:2"), "rate must lie between 0 and 1, got 2.0"),
    (changed(DIGITS, noise={"kind": "uniform", "rate": -0.5}), "noise: rate must lie between 0 and 1, got -0.5"),
    (changed(DIGITS, schedule={"kind": "steps", "at": [2]}), r"schedule: at must hold shares .*, got \[2.0\]"),
    (changed(DIGITS, optimizer__lr=0), "optimizer: lr must be positive, got 0.0"),
]

MISSPELT = [
    (changed(DIGITS, epoch=1), "unknown key 'epoch'; did you mean 'epochs'"),
    (changed(DIGITS, Epochs=1), "unknown key 'Epochs'; did you mean 'epochs'"),
    (changed(DIGITS, data__limitt=1), "unknown key 'data.limitt'; did you mean 'data.limit'"),
    (changed(DIGITS, group__batchsize=1), "unknown key 'group.batchsize'; did you mean 'group.batch_size'"),
    (changed(DIGITS, optimizer__lrate=1), "unknown key 'optimizer.lrate'; did you mean 'optimizer."),
    (changed(DIGITS, method={"kind": "bilevel", "mue": 1}), "unknown key 'method.mue'; did you mean 'method.mu'"),
    (changed(DIGITS, method={"kind": "sgd", "mu": 1}), "unknown key 'method.mu'; there is none"),
    (changed(DIGITS, method="bilevl"), "method: unknown rule 'bilevl'; did you mean 'bilevel'"),
    (changed(DIGITS, method={"kind": "bilevl"}), "method: unknown rule 'bilevl'; did you mean 'bilevel'"),
    (changed(DIGITS, loss="crossentropy"), "unknown loss 'crossentropy'; did you mean 'cross-entropy'"),
    (changed(DIGITS, mixing="mixap"), "unknown mixing 'mixap'; did you mean 'mixup'"),
    (changed(DIGITS, mixing={"kind": "mixup", "alfa": 1}), "unknown key 'mixing.alfa'; did you mean 'mixing.alpha'"),
    (changed(DIGITS, mixing={"alpha": 1}), "mixing must be one of mixup or a table with that kind, got {'alpha': 1}"),
    (changed(DIGITS, schedule="step"), "unknown schedule 'step'; did you mean 'steps'"),
    (changed(DIGITS, noise="unifrm:0.5"), "unknown kind of noise 'unifrm'; did you mean 'uniform'"),
    (changed(DIGITS, noise="uniform"), "noise must be written kind:rate, such as 'uniform:0.5', got 'uniform'"),
    (changed(DIGITS, noise={"kind": "uniform"}), "noise.rate is missing; it has no default"),
    (changed(DIGITS, network="digit_cn"), "unknown network 'digit_cn'; did you mean 'digit_cnn'"),
    (changed(DIGITS, data__name="digit"), "unknown data set 'digit'; did you mean 'digits'"),
    (changed(DIGITS, data__recipe="non"), "unknown recipe 'non'; did you mean 'none'"),
    (changed(DIGITS, optimizer="Adm"), "unknown optimizer 'Adm'; did you mean 'Adam'"),
    (changed(DIGITS, device="gpu"), "unknown value of device 'gpu'; did you mean 'cpu'"),
    (changed(DIGITS, precision="bfloat"), "unknown value of precision 'bfloat'; did you mean 'bfloat16'"),
    (changed(DIGITS, group__draw="suffled"), "unknown value of group.draw 'suffled'; did you mean 'shuffled'"),
    (changed(DIGITS, group__on_rare="rise"), "unknown value of group.on_rare 'rise'; did you mean 'raise'"),
    (
        changed(DIGITS, method={"kind": "bilevel", "solver": "exct"}),
        "method: solver 'exct' with validation 'first' is not a kind of method",
    ),
    ({"data": {"name": "digits"}}, "network is missing; it has no default"),
    ({"network": "digit_cnn"}, "data is missing; it has no default"),
    ({"data": {}, "network": "digit_cnn"}, "data.name is missing; it has no default"),
    ({}, "data is missing; it has no default"),
    ([], r"RunSpec must be a table of settings, got \[\]"),
    ("digits", "RunSpec must be a table of settings, got 'digits'"),
    (changed(DIGITS, data="digits"), "data must be a table of settings, got 'digits'"),
]


@pytest.mark.parametrize(("plain", "message"), IMPOSSIBLE)
def test_combinations_that_cannot_be_are_refused(plain, message):
    with pytest.raises(ValueError, match=message):
        from_plain(RunSpec, plain)


@pytest.mark.parametrize(("plain", "message"), OUT_OF_RANGE)
def test_numbers_out_of_range_are_refused(plain, message):
    with pytest.raises(ValueError, match=message):
        from_plain(RunSpec, plain)


@pytest.mark.parametrize(("plain", "message"), MISSPELT)
def test_what_is_misspelt_or_missing_is_named_with_the_nearest(plain, message):
    with pytest.raises(ValueError, match=message):
        from_plain(RunSpec, plain)


WHOLE = ["epochs", "seed", "threads", "evaluate_every", "zeroed_steps", "data.limit", "data.test_limit"]
WHOLE += ["data.test_crops", "network.side", "group.num_batches", "group.batch_size"]
NUMBERS = [
    "optimizer.lr",
    "method.mu",
    "method.lam",
    "group.holdout",
    "data.test_rate",
    "data.selection",
    "weight_averaging",
    "network.dropout",
    "optimizer.layer_decay",
]
FLAGS = [
    "network.pretrained",
    "network.freeze",
    "method.normalize",
    "method.per_layer",
    "shared_dropout",
    "audit",
    "group.matched",
    "data.selection_by_seed",
]
TEXTS = ["data.name", "data.recipe", "data.path", "data.labels", "data.split", "network.name", "network.weights"]
TEXTS += ["optimizer.name", "data.content", "data.test_path", "network.code"]
CHOICES = [
    "device",
    "precision",
    "passes",
    "data.train_figures",
    "method.weighting",
    "group.draw",
    "group.on_rare",
    "optimizer.decay",
]
WRONG = {
    "a whole number": (WHOLE, [True, 1.0, 1.5, "x", [1], {}, float("nan"), np.int64(3)]),
    "a number": (NUMBERS, [True, "x", [1.0], {}, float("nan"), float("inf"), 10**400, np.float64(0.5)]),
    "true or false": (FLAGS, [0, 1, 1.0, "x", []]),
    "text": (TEXTS, [1, 0.5, True, ["x"], {}, date(2020, 1, 1)]),
    "one of": (CHOICES, [1, True, ["cpu"], torch.device("cpu"), torch.float32]),
}


@pytest.mark.parametrize(
    ("wanted", "key", "value"),
    [(wanted, key, value) for wanted, (keys, values) in WRONG.items() for key in keys for value in values],
)
def test_a_value_of_the_wrong_type_is_refused_by_its_key(wanted, key, value):
    plain = to_plain(from_plain(RunSpec, DIGITS))
    owner, _, name = key.rpartition(".")
    (plain[owner] if owner else plain)[name] = value
    with pytest.raises(SpecError) as caught:
        from_plain(RunSpec, plain)
    assert str(caught.value).startswith(f"{key} must be {wanted}")
    assert repr(value)[:20] in str(caught.value)


def test_no_field_was_forgotten():
    plain = to_plain(from_plain(RunSpec, DIGITS))
    tried = {key for keys, _ in WRONG.values() for key in keys}
    leaves = {
        f"{key}.{name}" if isinstance(value, dict) else key
        for key, value in plain.items()
        for name in (value if isinstance(value, dict) else [key])
    }
    kinds = {"method.kind", "loss.kind", "schedule.kind"}
    tables = {"data.columns", "optimizer.arguments", "network.arguments"}
    assert leaves - tried == kinds | tables | {"noise", "mixing", "data.view"}


@pytest.mark.parametrize("key", [*WHOLE[:5], *CHOICES, "data.name", "network.name", "method.mu", "optimizer.lr"])
def test_nothing_is_no_value_where_one_is_needed(key):
    with pytest.raises(SpecError, match=rf"{key} must be .* got None"):
        with_value(from_plain(RunSpec, DIGITS), key, None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.toml", "epochs = ", "run.toml is not valid TOML"),
        ("run.json", "{", "run.json is not valid JSON"),
        ("run.json", b"\xff\xfe", "run.json is not valid JSON: .*can't decode"),
        ("run.toml", b"\xff\xfe", "run.toml is not valid TOML: .*can't decode"),
        ("run.yaml", "epochs: 1", "a spec is a .toml or .json file, got .*run.yaml"),
        ("run.json", json.dumps(changed(DIGITS, epoch=1)), "run.json: unknown key 'epoch'; did you mean 'epochs'"),
        ("run.json", '{"data": {"name": "digits"}, "network": "digit_cnn", "epochs": NaN}', "epochs must .* got nan"),
        ("run.toml", 'network = "digit_cnn"\n[data]\nname = "digits"\nlimit = true', "data.limit must be .* got True"),
        ("run.toml", 'network = 1979-05-27\n[data]\nname = "digits"', "network must be .* got datetime.date"),
    ],
)
def test_files_that_cannot_be_read_are_named_with_what_is_wrong(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SpecError, match=message) as caught:
        load_spec(path)
    assert name in str(caught.value)


def test_a_missing_file_says_how_to_get_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run.toml does not exist; .*--dry-run"):
        read_plain(tmp_path / "run.toml")


def test_a_spec_is_not_written_to_a_file_that_could_not_be_read(tmp_path):
    with pytest.raises(SpecError, match=r"a spec is a .toml or .json file, got .*run.txt"):
        save_spec(default_spec("digits"), tmp_path / "run.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_short_file_by_hand_is_enough(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('network = "digit_cnn"\nnoise = "pair:0.2"\n[data]\nname = "digits"\n[optimizer]\nname = "Adam"\n')
    spec = load_spec(path)
    assert str(spec.noise) == "pair:0.2"
    assert dict(spec.optimizer.arguments) == {}
    assert spec.epochs == 100
