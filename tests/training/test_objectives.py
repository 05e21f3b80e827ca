"""Losses that remember, in real runs: they learn from noisy digits, and go on after a stop as if nothing had been."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from torch import nn

from deepbilevel_lab.losses import LOSSES, ObjectiveSpec
from deepbilevel_lab.losses.objective import last_linear, with_features
from deepbilevel_lab.networks.catalog import NETWORKS, build_network
from deepbilevel_lab.training.checkpoints import Checkpoints
from deepbilevel_lab.training.loop import DivergedError
from tests.training.test_combinations import QUICK, digits, started
from tests.training.test_packing import same

OBJECTIVES = [kind for kind, spec in LOSSES.items() if issubclass(spec, ObjectiveSpec)]
EVERY_RULE = [kind for kind in OBJECTIVES if LOSSES[kind].only_with_sgd is None]
VARIANTS = [
    '{"kind": "noise-layer", "depends_on": "features"}',
    '{"kind": "noise-layer", "linear": true}',
    '{"kind": "noise-layer", "dropout": 0.1}',
    '{"kind": "self-paced", "gamma": 0}',
]
RUNS = [*((kind, "sgd") for kind in [*OBJECTIVES, *VARIANTS]), *((kind, "bilevel") for kind in EVERY_RULE)]


# A network that has seen next to nothing cannot tell the noise, and says so.
hasty = pytest.mark.filterwarnings("ignore:the estimated transition has almost no inverse")


def to_the_end(loop):
    for _ in loop.run():
        pass
    return loop


@hasty
@pytest.mark.parametrize(("loss", "method"), RUNS)
# Of four: before what a loss may estimate in the middle, and after.
@pytest.mark.parametrize("epoch", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_run_that_is_stopped_in_mid_epoch_ends_with_the_same_bits(loss, method, epoch, tmp_path):
    spec = digits(method=method, loss=loss, epochs=4, data__limit=400, group__batch_size=16, noise="uniform:0.4")
    unbroken = to_the_end(started(spec))
    first = started(spec)
    for progress in first.run():
        if progress.stage == "train" and progress.epoch == epoch and progress.done == 2:
            break
    assert 0 < first.group < first.parts.groups.num_groups
    Checkpoints(tmp_path).save(1, first.state_dict())
    torch.manual_seed(99)  # another process would begin with other numbers
    second = started(spec)
    second.load_state_dict(Checkpoints(tmp_path).load_latest()[1])
    to_the_end(second)
    assert second.history == unbroken.history
    for each in ("model", "objective", "optimizer", "random"):
        assert same(second.state_dict()[each], unbroken.state_dict()[each])


@hasty
@pytest.mark.parametrize("loss", [*OBJECTIVES, *VARIANTS])
def test_every_objective_learns_from_noisy_digits(loss):
    settings = {"noise": "uniform:0.3", "epochs": 6, "evaluate_every": 6, **QUICK}
    loop = to_the_end(started(digits(method="sgd", loss=loss, **settings)))
    # Guessing gives 10 %, give or take 1.4. Half of the epochs come after what a loss may estimate in the middle: what
    # it then does wrong, as a correction by the wrong matrix or of the wrong sign, unlearns what the warm-up learned.
    assert loop.history[-1].test > 40


@hasty
@pytest.mark.parametrize("method", ["bilevel", "cross-validated", "uniform"])
@pytest.mark.parametrize("loss", EVERY_RULE)
def test_every_rule_goes_on_after_the_warm_up(loss, method):
    loop = started(digits(method=method, loss=loss, epochs=2, data__limit=256, group__batch_size=8))
    before: list[torch.Tensor] = []
    for progress in loop.run():
        if progress.stage == "epoch" and progress.epoch == 0:
            before = [parameter.detach().clone() for parameter in loop.parts.objective.parameters()]
    assert bool(torch.isfinite(loop.report.losses).all())
    after = list(loop.parts.objective.parameters())
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("loss", ["noise-layer", '{"kind": "noise-layer", "depends_on": "features"}'])
def test_weights_per_layer_know_the_layer_of_the_objective(loss):
    method = '{"kind": "bilevel", "per_layer": true}'
    loop = to_the_end(started(digits(method=method, loss=loss, epochs=2, data__limit=256, group__batch_size=8)))
    assert loop.report.weights.shape == (7, 5)  # four layers of the network, one of the objective
    assert bool((loop.report.weights.abs().sum(0) > 0).all())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_last_layer_gives_the_scores_of_every_network(name):
    network = build_network(name, num_classes=7).eval()
    images = torch.randn(1, *NETWORKS[name].input_shape)
    with torch.no_grad():
        scores, features = with_features(lambda model, given: model(given), network, images, 7)
        assert torch.equal(last_linear(network, 7)(features), scores)
    assert not last_linear(network, 7)._forward_pre_hooks


def test_plain_runs_have_no_objective():
    loop = started(digits())
    assert loop.parts.objective is None
    assert loop.state_dict()["objective"] is None


@pytest.mark.parametrize("loss", OBJECTIVES)
def test_the_objective_keeps_nothing_of_the_network(loss):
    parts = started(digits(method="sgd", loss=loss, data__limit=256)).parts
    own = {id(tensor) for tensor in parts.model.parameters()}
    assert own.isdisjoint(map(id, parts.objective.parameters()))
    trained = [tensor for group in parts.optimizer.param_groups for tensor in group["params"]]
    assert {id(tensor) for tensor in trained} == own | set(map(id, parts.objective.parameters()))


@pytest.mark.parametrize("loss", EVERY_RULE)
def test_bfloat16_networks_give_losses_of_float32(loss):
    loop = started(digits(method="bilevel", loss=loss, precision="bfloat16", data__limit=256))
    for _ in islice(loop.run(), 1):
        assert loop.report.losses.dtype == torch.float32
        assert loop.report.applied


def test_a_lost_objective_is_noticed_before_it_is_saved():
    loop = started(digits(loss="early-learning", data__limit=256))
    loop.parts.objective.own = nn.Parameter(torch.tensor(torch.nan))
    with pytest.raises(DivergedError, match=r"the parameter loss\.own is not finite"):
        loop.check_parameters()


def test_an_epoch_begins_once_however_often_it_is_resumed():
    spec = digits(loss="early-learning", epochs=2, data__limit=400, group__batch_size=16)
    begun = []

    def watched(spec):
        loop = started(spec)
        begin = loop.parts.objective.begin_epoch
        loop.parts.objective.begin_epoch = lambda epoch, predict: (begun.append(epoch), begin(epoch, predict))
        return loop

    loop = watched(spec)
    for _ in islice(loop.run(), 1):
        pass
    other = watched(spec)
    other.load_state_dict(loop.state_dict())
    to_the_end(other)
    assert begun == [0, 1]


def test_predictions_are_those_of_all_training_images_in_order():
    loop = started(digits(loss="early-learning", data__limit=300))
    asked = []
    loop.parts.objective.begin_epoch = lambda epoch, predict: asked.append(predict())
    for _ in islice(loop.run(), 1):
        break
    fresh = started(replace(loop.parts.spec))
    fresh.parts.model.eval()
    with torch.no_grad():
        [batch] = fresh.parts.train.batches(300)
        torch.testing.assert_close(asked[0], fresh.parts.model(batch.images).softmax(1))
    assert batch.indices.tolist() == list(range(300))
