"""Noise made by a small network that was trained on real digits for a moment."""

import copy

import numpy as np
import pytest
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.noise import flip_by_model, flip_uniformly
from tests.contracts.noise import chi_square, confusion_of


@pytest.fixture(scope="module")
def digits():
    pixels, labels = datasets.load_digits(return_X_y=True)
    return torch.from_numpy(pixels / 16).float(), torch.from_numpy(labels).long()


@pytest.fixture(scope="module")
def trained(digits):
    """Return a network with BatchNorm and dropout, in training mode but for its last layer: modes worth restoring."""
    images, labels = digits
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Sequential(nn.Dropout(0.7)), nn.Linear(64, 10)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(4):
            for batch in torch.randperm(len(images)).split(64):
                optimizer.zero_grad()
                F.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()
        optimizer.zero_grad()
    model[4].eval()
    return model


@pytest.fixture
def make(digits, trained):
    """Return a function that makes noise from the trained network; arguments can be replaced."""
    images, labels = digits

    def flip(rate=None, **changes):
        arguments = {"clean_labels": labels, "model": trained, "images": images, "num_classes": 10, "seed": 0}
        return flip_by_model(**{**arguments, "rate": rate, **changes})

    return flip


def scores_of(model, images, *, seed=None):
    """Return scores with BatchNorm off, and with dropout on if there is a seed."""
    twin = copy.deepcopy(model).eval()
    if seed is not None:
        twin[3][0].train()
        torch.manual_seed(seed)
    with torch.no_grad():
        return torch.cat([twin(batch) for batch in images.split(256)]).double()


def leads_of(scores, labels):
    """Return by how much the true class leads the strongest other one, and that other one."""
    others = scores.scatter(1, labels[:, None], -torch.inf).max(dim=1)
    return (scores.gather(1, labels[:, None]).squeeze(1) - others.values).numpy(), others.indices.numpy()


def test_without_a_rate_labels_are_the_predictions_with_dropout_on_and_batchnorm_off(make, digits, trained):
    expected = scores_of(trained, digits[0], seed=3).argmax(dim=1)
    np.testing.assert_array_equal(make(seed=3).labels, expected.numpy())


def test_dropout_left_on_makes_more_mistakes(make):
    off, on = make(dropout=False).rate, make().rate
    assert 0 < off < 0.1
    assert on > 2 * off


def test_without_dropout_the_seed_does_not_matter_and_with_it_it_does(make):
    np.testing.assert_array_equal(make(dropout=False, seed=1).labels, make(dropout=False, seed=2).labels)
    assert (make(seed=1).labels != make(seed=2).labels).any()


@pytest.mark.parametrize("rate", [0, 0.01, 0.05, 0.2, 0.44, 0.9, 1])
def test_the_wanted_rate_is_met_to_the_label(make, digits, rate):
    assert make(rate).flipped.sum() == int(rate * len(digits[1]))


def test_a_rate_below_the_models_own_keeps_a_random_part_of_its_mistakes(make, digits, trained):
    own, diluted = make(), make(0.03)
    assert diluted.rate < own.rate / 2
    assert not diluted.flipped[~own.flipped].any()
    np.testing.assert_array_equal(diluted.labels[diluted.flipped], own.labels[diluted.flipped])
    # Random, so neither the place in the data nor the model's certainty decides: the mean rank of those kept is that
    # of all mistakes, give or take five standard deviations. Which mistakes there are is up to the machine that trained
    # the network; the 53 first or least certain of some 250 would be ten deviations off.
    leads, _ = leads_of(scores_of(trained, digits[0], seed=0), digits[1])
    kept = diluted.flipped[own.flipped]
    for ranks in (np.arange(len(kept)), leads[own.flipped].argsort().argsort()):
        assert abs(ranks[kept].mean() - ranks.mean()) < 5 * ranks.std() / kept.sum() ** 0.5


def test_a_rate_above_the_models_own_adds_the_images_it_was_least_sure_of(make, digits, trained):
    own, more = make(), make(0.5)
    np.testing.assert_array_equal(more.labels[own.flipped], own.labels[own.flipped])
    leads, rivals = leads_of(scores_of(trained, digits[0], seed=0), digits[1])
    assert leads[more.flipped].max() <= leads[~more.flipped].min()
    np.testing.assert_array_equal(more.labels[more.flipped], rivals[more.flipped])


def test_mistakes_follow_likeness_and_some_classes_are_harder_than_others(make):
    def unevenness(noisy):
        wrong = confusion_of(noisy)[~np.eye(10, dtype=bool)].reshape(10, 9)
        return chi_square(wrong, wrong.mean(axis=1, keepdims=True))

    made, uniform = make(0.44), flip_uniformly(make().clean_labels, 0.44, num_classes=10, seed=0)
    # 10 x 8 degrees of freedom; chance passes 124.8 once in a thousand seeds.
    # The same bound for both: labels drawn without regard to likeness are below it, and mistakes of a network, with
    # 600 and more from five seeds, far above.
    assert unevenness(uniform) < 124.8 < unevenness(made)
    assert np.ptp(made.rates_per_class) > 2 * np.ptp(uniform.rates_per_class)


@pytest.mark.parametrize("changes", [{}, {"rate": 0.3}, {"dropout": False}], ids=str)
def test_the_model_and_the_random_numbers_are_left_as_they_were(make, trained, changes):
    modes = [module.training for module in trained.modules()]
    state = copy.deepcopy(trained.state_dict())
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    make(**changes)
    assert torch.equal(torch.rand(3), expected)
    assert [module.training for module in trained.modules()] == modes
    assert len(set(modes)) == 2
    assert all(torch.equal(value, state[name]) for name, value in trained.state_dict().items())
    assert all(parameter.grad is None for parameter in trained.parameters())


class Interruption(BaseException):
    """Something no ordinary handler catches, as Ctrl-C."""


def test_modes_and_random_numbers_are_restored_after_an_interruption_too(make, digits, trained):
    def interrupted():
        yield digits[0][:100]
        torch.rand(1)
        raise Interruption

    modes, state = [module.training for module in trained.modules()], torch.get_rng_state()
    with pytest.raises(Interruption):
        make(images=interrupted())
    assert [module.training for module in trained.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_mini_batches_do_as_well_as_one_tensor(make, digits):
    np.testing.assert_array_equal(make(images=iter(digits[0].split(256))).labels, make().labels)
    np.testing.assert_array_equal(make(images=digits[0].split(100)).labels, make(batch_size=100).labels)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": nn.Sequential(nn.Linear(64, 10), nn.Dropout(0))}, ValueError, "Sequential.* has no dropout layer"),
        ({"model": nn.Linear(64, 9), "dropout": False}, ValueError, r"scores \(256, 10\) for 256 .* got \(256, 9\)"),
        ({"model": nn.LSTM(64, 10), "dropout": False}, ValueError, "model must return scores .* got tuple"),
        ({"images": torch.full((1797, 64), torch.nan)}, ValueError, "scores that are not finite among images 0 to 255"),
        ({"images": torch.zeros(1796, 64)}, ValueError, "images holds 1796 images, but clean_labels has 1797 labels"),
        ({"images": torch.zeros(1798, 64)}, ValueError, "images holds more than the 1797 images"),
        ({"images": [(torch.zeros(1, 64), 0)]}, TypeError, r"images must yield tensors, got tuple; .*x for x, _ in"),
        ({"num_classes": 9}, ValueError, "clean_labels must lie in 0 .. num_classes - 1 = 8, got 0 to 9"),
        ({"num_classes": 1, "clean_labels": [0]}, ValueError, "num_classes must be at least 2 .* got 1"),
        ({"rate": 44}, ValueError, "rate must lie between 0 and 1, got 44; for 44 % pass 0.44"),
        ({"seed": None}, TypeError, "seed must be a whole number, got None"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_wrong_arguments_are_refused_by_name(make, changes, error, message):
    with pytest.raises(error, match=message):
        make(**changes)
