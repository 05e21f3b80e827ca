"""What a loop can get wrong without an error is said once."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import Bilevel, CrossValidated, MatchedGroups
from deepbilevel.distributed import share

K = 4


def make(num_batches=K, make_step=Bilevel):
    inputs, labels = torch.randn(48, 3), torch.arange(48) % 3
    model = nn.Linear(3, 3)
    return TensorDataset(inputs, labels), labels, model, make_step(model, num_batches=num_batches)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def run(loader, model, step, optimizer, *, with_labels=False, loss_of=F.cross_entropy):
    for x, y in loader:
        step.backward(loss_of(model(x), y), labels=y if with_labels else None)
        if step.full:
            step.fill()
            optimizer.step()


def warned(work):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(each.message) for each in caught]


def test_the_usual_loop_is_not_commented_on():
    dataset, labels, model, step = make()
    groups = MatchedGroups(labels, num_batches=K, batch_size=3, seed=0)
    loader = DataLoader(dataset, batch_sampler=groups)
    assert warned(lambda: run(loader, model, step, sgd(model), with_labels=True)) == []
    assert warned(lambda: run(step.loader(dataset, labels, batch_size=3, seed=0), model, step, sgd(model))) == []


def test_another_group_size_in_the_sampler_is_said_once():
    dataset, labels, model, step = make(num_batches=8)
    loader = DataLoader(dataset, batch_sampler=MatchedGroups(labels, num_batches=K, batch_size=3, seed=0))
    (said,) = warned(lambda: [run(loader, model, step, sgd(model)) for _ in range(3)])
    assert "groups of num_batches=4 mini-batches, but this step compares num_batches=8" in said
    assert "bilevel.loader(dataset, labels" in said


def test_a_sampler_that_is_gone_is_not_looked_at():
    dataset, labels, model, step = make(num_batches=8)
    list(MatchedGroups(labels, num_batches=K, batch_size=3, seed=0))
    assert warned(lambda: run(DataLoader(dataset, batch_size=3), model, step, sgd(model))) == []


def test_rules_that_need_no_matching_take_any_sampler():
    dataset, labels, model, step = make(num_batches=8, make_step=CrossValidated)
    loader = DataLoader(dataset, batch_sampler=MatchedGroups(labels, num_batches=K, batch_size=3, seed=0))
    assert warned(lambda: run(loader, model, step, sgd(model))) == []


def test_unmatched_labels_are_refused_and_the_group_stays():
    dataset, _labels, model, step = make()
    x, y = dataset.tensors
    step.backward(F.cross_entropy(model(x[:3]), y[:3]), labels=y[:3])
    with pytest.raises(ValueError, match="labels of mini-batch 2 of the group are not those of the first one") as error:
        step.backward(F.cross_entropy(model(x[:3]), y[1:4] * 0), labels=y[1:4] * 0)
    assert "bilevel.loader(dataset, labels" in str(error.value)
    assert step.num_collected == 1
    for _ in range(K - 1):
        step.backward(F.cross_entropy(model(x[1:4]), y[1:4]), labels=y[1:4])  # the same ones in another order
    step.fill()
    step.backward(F.cross_entropy(model(x[:2]), y[:2] * 0), labels=y[:2] * 0)  # another group has others
    step.reset()
    step.backward(F.cross_entropy(model(x[:3]), y[:3]), labels=y[:3])


@pytest.mark.parametrize("labels", [torch.rand(3), torch.eye(3, dtype=torch.long)])
def test_labels_that_are_no_classes_are_refused(labels):
    _, _, model, step = make()
    with pytest.raises(TypeError, match="labels must be one class per sample"):
        step.backward(model(torch.ones(3, 3)).mean(), labels=labels)
    assert step.num_collected == 0


def test_rules_that_need_no_matching_do_not_look_at_labels():
    dataset, _labels, model, step = make(make_step=CrossValidated)
    loader = DataLoader(dataset, batch_size=3)
    assert warned(lambda: run(loader, model, step, sgd(model), with_labels=True)) == []
    x, y = dataset.tensors
    for start in (0, 1):
        step.backward(F.cross_entropy(model(x[:2]), y[:2]), labels=y[start : start + 2])


def test_an_optimizer_that_steps_in_mid_group_is_said_once():
    dataset, labels, model, step = make()
    optimizer = sgd(model)

    def every_time():
        for x, y in step.loader(dataset, labels, batch_size=3, seed=0):
            step.backward(F.cross_entropy(model(x), y))
            if step.full:
                step.fill()
            optimizer.step()

    (said,) = warned(lambda: [every_time() for _ in range(2)])
    assert "optimizer.step() was called after 1 of num_batches=4 mini-batches of a group" in said
    assert "call it after fill(), when `full` is true" in said


def test_optimizers_of_other_parameters_step_as_they_like():
    _, _, model, step = make()
    other = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([other], lr=0.1)
    step.backward(model(torch.ones(2, 3)).mean())
    other.grad = torch.ones(1)
    assert warned(optimizer.step) == []


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adamax])
def test_optimizers_that_undo_shrunken_gradients_are_said_once(kind):
    dataset, labels, model, step = make(make_step=CrossValidated)
    loader = step.loader(dataset, labels, batch_size=3, seed=0)
    optimizer = kind(model.parameters(), lr=0.01)
    (said,) = warned(lambda: [run(loader, model, step, optimizer) for _ in range(2)])
    assert f"{kind.__name__} divides by the size of the gradients it gets" in said
    assert "take shrink='update' with optimizer=..., or SGD" in said


@pytest.mark.parametrize("settings", [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}])
def test_optimizers_that_keep_the_size_are_not_commented_on(settings):
    dataset, labels, model, step = make(make_step=CrossValidated)
    loader = step.loader(dataset, labels, batch_size=3, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    assert warned(lambda: [run(loader, model, step, optimizer) for _ in range(2)]) == []
    dataset, labels, model, step = make()  # whose weights are relative to each other, so that Adam does no harm
    adam = torch.optim.Adam(model.parameters())
    loader = step.loader(dataset, labels, batch_size=3, seed=0)
    assert warned(lambda: [run(loader, model, step, adam) for _ in range(2)]) == []


DIVIDED = {
    "divided": lambda out, y: F.cross_entropy(out, y) / K,
    "multiplied": lambda out, y: F.cross_entropy(out, y) * (1 / K),
    "by a tensor": lambda out, y: F.cross_entropy(out, y) / torch.tensor(float(K)),
    "a mean": lambda out, y: (out - y[:, None]).square().mean() / K,
}
NOT_DIVIDED = {
    "plain": F.cross_entropy,
    "by another number": lambda out, y: F.cross_entropy(out, y) / 3,
    "a sum over samples": lambda out, y: F.cross_entropy(out, y, reduction="none").sum() / K,
    "a sum by torch": lambda out, y: F.cross_entropy(out, y, reduction="sum") / K,
    "a sum of terms": lambda out, y: F.cross_entropy(out, y) / K + out.square().mean(),
    "by zero": lambda out, y: F.cross_entropy(out, y) / 0,
}


@pytest.mark.parametrize("name", DIVIDED)
def test_losses_divided_by_the_group_size_are_said_once(name):
    dataset, labels, model, step = make()
    loader = step.loader(dataset, labels, batch_size=3, seed=0)
    (said,) = warned(lambda: run(loader, model, step, sgd(model), loss_of=DIVIDED[name]))
    assert "the loss was divided by 4, the number of mini-batches in a group" in said
    assert "pass the loss undivided to backward()" in said


@pytest.mark.parametrize("name", NOT_DIVIDED)
def test_other_losses_are_not_commented_on(name):
    dataset, labels, model, step = make()
    loader = step.loader(dataset, labels, batch_size=3, seed=0)
    assert warned(lambda: run(loader, model, step, sgd(model), loss_of=NOT_DIVIDED[name])) == []


def test_a_warning_points_at_the_line_to_be_mended():
    _, _, model, step = make()
    with pytest.warns(UserWarning, match="divided by 4") as caught:
        step.backward(model(torch.ones(2, 3)).mean() / K)
    assert caught[0].filename == __file__


def test_the_loader_of_a_step_knows_its_group_size_and_the_labels():
    dataset, labels, _model, step = make()
    loader = step.loader(dataset, labels, batch_size=3, seed=5, num_workers=0, draw="stratified")
    assert loader.groups.num_batches == K
    assert [y.tolist() for _, y in loader] == [
        labels[i].tolist() for i in MatchedGroups(labels, num_batches=K, batch_size=3, seed=5, draw="stratified")
    ]
    with pytest.raises(ValueError, match="labels has 47 entries, but dataset has 48 items"):
        step.loader(dataset, labels[:-1], batch_size=3, seed=0)


def test_the_loader_of_a_step_that_works_alone_is_alone():
    dataset, labels, _, step = make()
    loader = share(step, "nothing").loader(dataset, labels, batch_size=3, seed=0)
    assert len(list(loader)) == len(loader) == 16


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("taken", [0, K, 3 * K, 3 * K + 2, 4 * K, 5 * K])
def test_a_loader_goes_on_after_the_last_whole_group(num_workers, taken):
    dataset, labels, _, step = make()

    def loader():
        return step.loader(dataset, labels, batch_size=3, seed=0, num_workers=num_workers)

    def epochs(of):
        for _ in range(3):
            yield from (y.tolist() for _, y in of)

    unbroken = list(epochs(loader()))
    first = loader()
    running = epochs(first)
    for _ in range(taken):
        next(running)
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    assert second.state_dict() == state
    rest = list(epochs(second))
    assert rest[: len(unbroken) - taken // K * K] == unbroken[taken // K * K :]
    second.set_epoch(1)
    assert [y.tolist() for _, y in second] == unbroken[16:32]
