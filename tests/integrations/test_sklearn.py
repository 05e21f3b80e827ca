"""The classifier is an estimator like any other, does what the plain loop does, and survives a file without pickle."""

import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is missing; run: pip install '.[sklearn]'")
pytest.importorskip("safetensors", reason="safetensors is missing; run: pip install '.[sklearn]'")

from safetensors.torch import load_file, save_file  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import make_classification  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import PolynomialFeatures, StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from deepbilevel import Bilevel, MatchedGroups  # noqa: E402
from deepbilevel.contract import Rule  # noqa: E402
from deepbilevel.integrations.sklearn import NoisyLabelClassifier  # noqa: E402
from deepbilevel.rules.bilevel import BilevelRule  # noqa: E402
from deepbilevel.rules.cross_validated import CrossValidatedRule  # noqa: E402


def data(num_samples=120, **options):
    return make_classification(num_samples, 6, n_informative=4, n_classes=3, random_state=0, **options)


def quick(**settings):
    return NoisyLabelClassifier(**{"epochs": 3, "hidden_sizes": (8,), "random_state": 0, **settings})


def own_network(num_features, num_classes):
    return nn.Sequential(nn.Linear(num_features, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, num_classes))


def first_weights(model):
    return next(iter(model.network_.parameters())).detach()


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["cross-validated", "bilevel", "sgd"])
@pytest.mark.filterwarnings("ignore:class .* has a share")
def test_every_check_of_scikit_learn_passes(rule):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=sklearn.exceptions.SkipTestWarning)
        for result in check_estimator(NoisyLabelClassifier(rule), on_fail=None):
            assert result["status"] in ("passed", "skipped"), result["exception"]


def test_it_does_what_the_plain_loop_does():
    x, y = data(512)
    ours = quick(rule="bilevel", num_batches=4, batch_size=8, learning_rate=0.05, weight_decay=0.0).fit(x, y)
    assert ours.group_shape_ == (4, 8)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    rows = torch.from_numpy((x - x.mean(axis=0)) / x.std(axis=0)).float()
    labels = torch.from_numpy(y)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    groups = MatchedGroups(labels, num_batches=4, batch_size=8, seed=seed)
    bilevel = Bilevel(model, num_batches=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 * groups.num_groups)
    for _ in range(3):
        for inputs, targets in DataLoader(TensorDataset(rows, labels), batch_sampler=groups):
            bilevel.backward(F.cross_entropy(model(inputs), targets))
            if bilevel.full:
                bilevel.fill()
                optimizer.step()
                schedule.step()
    theirs = nn.utils.parameters_to_vector(model.parameters()).detach().double()
    torch.testing.assert_close(
        nn.utils.parameters_to_vector(ours.network_.parameters()).detach(), theirs, rtol=1e-3, atol=1e-4
    )


def test_random_numbers_of_others_are_left_alone():
    x, y = data()
    before = torch.get_rng_state()
    first = quick().fit(x, y)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first_weights(quick().fit(x, y)), first_weights(first))
    assert not torch.equal(first_weights(quick(random_state=1).fit(x, y)), first_weights(first))


def test_it_learns_and_knows_its_labels_by_name():
    x, y = data(300, class_sep=3.0)
    names = np.array(["a", "b", "c"])[y]
    model = quick(epochs=20).fit(x, names)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.score(x, names) > 0.8
    assert model.predict_proba(x).sum(axis=1) == pytest.approx(np.ones(300))


@pytest.mark.parametrize("num_samples", [120, 300, 1000])
def test_constant_features_are_not_divided_by_rounding(num_samples):
    x, y = data(num_samples)
    rounded = np.where(np.arange(num_samples) % 2, 0.3, 0.1 + 0.2)  # as other columns add up to
    constant = [np.full(num_samples, value) for value in (0.0, 0.1, -1234.5678, 1e-200)]
    model = quick(epochs=1).fit(np.column_stack([x, *constant, rounded]), y)
    assert model.scale_[6:].tolist() == [1.0] * 5
    assert model.scale_[:6] == pytest.approx(x.std(axis=0))


def test_pipelines_cross_validation_and_searches():
    x, y = data()
    pipeline = make_pipeline(PolynomialFeatures(2), StandardScaler(), quick())
    assert len(cross_val_score(pipeline, x, y, cv=3)) == 3
    rules = ["sgd", CrossValidatedRule(strength=0.5), BilevelRule(mu=0.1)]
    search = GridSearchCV(quick(), {"rule": rules, "learning_rate": [0.01, 0.1]}, cv=2).fit(x, y)
    assert len(search.cv_results_["params"]) == 6
    assert search.best_estimator_.predict(x).shape == (120,)
    assert clone(quick(rule=rules[1], network=own_network)).get_params()["rule"] == rules[1]


def test_cleanlab_wraps_it():
    cleanlab = pytest.importorskip("cleanlab.classification", reason="cleanlab is missing; run: pip install cleanlab")
    x, y = data(240, class_sep=3.0)
    wrong = np.arange(240) % 10 == 0
    labels = np.where(wrong, (y + 1) % 3, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cleanlab says of pandas and of itself
        found = cleanlab.CleanLearning(quick(epochs=10), cv_n_folds=3).fit(x, labels)
    issues = found.get_label_issues()["is_label_issue"].to_numpy()
    assert issues[wrong].mean() > issues[~wrong].mean()
    assert found.predict(x).shape == (240,)


@pytest.mark.parametrize("rule", ["bilevel", "cross-validated", "sgd", "median-of-three"])
@pytest.mark.parametrize("num_samples", [7, 20, 60])
@pytest.mark.filterwarnings("ignore:class .* has a share")
def test_groups_fit_themselves_to_few_samples(rule, num_samples):
    x, y = data(num_samples)
    y[:2] = [5, 6]  # classes of one sample
    model = quick(rule=rule).fit(x, y)
    num_batches, batch_size = model.group_shape_
    assert 2 <= num_batches <= 8
    assert num_batches * batch_size <= num_samples
    assert model.predict(x).shape == (num_samples,)


def test_sample_weights_are_refused():
    x, y = data()
    with pytest.raises(TypeError, match="sample_weight"):
        quick().fit(x, y, sample_weight=np.ones(len(y)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "bilvel"}, "unknown rule 'bilvel'; did you mean 'bilevel'"),
        ({"num_batches": 1}, "num_batches must be at least 2, got 1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(*data())


def test_one_class_and_one_sample_are_refused():
    x, y = data()
    with pytest.raises(ValueError, match="y holds one class only"):
        quick().fit(x, y * 0)
    with pytest.raises(ValueError, match="n_samples=2 cannot be split into 3 mini-batches"):
        quick(rule="median-of-three", num_batches=3).fit(x[:2], [0, 1])


# Files.


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, [0, 1, 2]),
        ({"rule": BilevelRule(mu=0.5)}, ["a", "b", "c"]),
        ({"rule": "sgd", "hidden_sizes": (4, 3)}, [-1.0, 0.0, 1.0]),
        ({"network": own_network}, [7, 8, 9]),
    ],
    ids=["default", "a rule", "a name", "a network"],
)
def test_a_file_holds_what_was_learned(tmp_path, settings, names):
    x, y = data()
    model = quick(**settings).fit(x, np.array(names)[y])
    model.save(tmp_path / "model.safetensors")
    again = NoisyLabelClassifier.load(tmp_path / "model.safetensors", network=settings.get("network"))
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    assert (again.predict(x) == model.predict(x)).all()
    assert again.classes_.dtype == model.classes_.dtype
    assert again.group_shape_ == model.group_shape_
    mine, theirs = (each.get_params() for each in (again, model))
    assert {**mine, "hidden_sizes": tuple(mine["hidden_sizes"])} == theirs
    assert list(tmp_path.iterdir()) == [tmp_path / "model.safetensors"]
    assert torch.equal(first_weights(pickle.loads(pickle.dumps(model))), first_weights(model))


def test_names_of_features_survive(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is missing; run: pip install pandas")
    x, y = data()
    frame = pandas.DataFrame(x, columns=list("uvwxyz"))
    model = quick().fit(frame, y)
    model.save(tmp_path / "model.safetensors")
    again = NoisyLabelClassifier.load(tmp_path / "model.safetensors")
    assert again.feature_names_in_.tolist() == list("uvwxyz")
    assert (again.predict(frame) == model.predict(frame)).all()


@pytest.mark.parametrize("kind", [None, "object", "category", "string"])
def test_labels_of_pandas_survive(tmp_path, kind):
    pandas = pytest.importorskip("pandas", reason="pandas is missing; run: pip install pandas")
    x, y = data()
    model = quick().fit(x, pandas.Series(np.array(["a", "b", "longer\0"], dtype=object)[y], dtype=kind))
    model.save(tmp_path / "model.safetensors")
    again = NoisyLabelClassifier.load(tmp_path / "model.safetensors")
    assert again.classes_.dtype == model.classes_.dtype
    assert again.classes_.tolist() == model.classes_.tolist() == ["a", "b", "longer\0"]
    assert (again.predict(x) == model.predict(x)).all()


def test_only_trained_classifiers_are_saved(tmp_path):
    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "model.safetensors")
    x, y = data()
    days = np.array(["2025-01-01", "2025-01-02", "2025-01-03"], dtype="datetime64[D]")
    model = quick().fit(x, days[y])
    with pytest.raises(
        ValueError, match=r"classes of type datetime64.* cannot be saved; train with numbers or strings"
    ):
        model.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


class OwnRule(CrossValidatedRule):
    kind = "tests.integrations.test_sklearn:OwnRule"


def test_rules_and_networks_of_ones_own_are_passed_again(tmp_path):
    assert issubclass(OwnRule, Rule)
    x, y = data()
    path = tmp_path / "model.safetensors"
    quick(network=own_network).fit(x, y).save(path)
    with pytest.raises(ValueError, match=r"trained with a network of one's own; pass it as network=\.\.\."):
        NoisyLabelClassifier.load(path)
    quick(rule=OwnRule()).fit(x, y).save(path)
    with pytest.raises(ValueError, match="trained without a network of one's own; leave it out"):
        NoisyLabelClassifier.load(path, network=own_network)
    with pytest.raises(ValueError, match=r"'tests.integrations.test_sklearn:OwnRule', a rule of one's own; pass it as"):
        NoisyLabelClassifier.load(path)
    assert NoisyLabelClassifier.load(path, rule="sgd").rule == "sgd"


def changed(path, change):
    """Write the file anew with another header."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        described = dict(file.metadata())
    header = json.loads(described["classifier"])
    change(header)
    described["classifier"] = json.dumps(header)
    save_file(load_file(path), path, described)


FORGERIES = {
    "no classes": lambda header: header.pop("classes"),
    "a huge layer": lambda header: header["settings"].update(hidden_sizes=[10**12]),
    "a negative layer": lambda header: header["settings"].update(hidden_sizes=[-1]),
    "other layers": lambda header: header["settings"].update(hidden_sizes=[7]),
    "no rule": lambda header: header.update(rule=None),
    "a rule from elsewhere": lambda header: header.update(rule="os:system"),
    "a rule with other settings": lambda header: header.update(rule={"kind": "bilevel", "nu": 3}),
    "classes of classes": lambda header: header["classes"].update(values=[[1], [2]]),
    "objects as classes": lambda header: header["classes"].update(values=[{}, {}, {}]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_files_are_refused(tmp_path, forgery):
    path = tmp_path / "model.safetensors"
    quick().fit(*data()).save(path)
    changed(path, FORGERIES[forgery])
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be loaded: "):
        NoisyLabelClassifier.load(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"is no file of NoisyLabelClassifier.save"):
        NoisyLabelClassifier.load(path)
    save_file({"weight": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"is no file of NoisyLabelClassifier.save: its format is None"):
        NoisyLabelClassifier.load(path)
    with pytest.raises(FileNotFoundError):
        NoisyLabelClassifier.load(tmp_path / "missing.safetensors")
