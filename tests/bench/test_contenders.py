"""The contenders do what their names say."""

from dataclasses import dataclass, field

import pytest
import torch
from torch.nn import functional as F

from benchmarks.cost.contenders import EVERYBODY, accumulation, gramian_descent, jacobian_descent, ours, sgd, sgd_on_one
from benchmarks.cost.work import Setting, Work, optimizer_of
from deepbilevel import Bilevel

SETTING = Setting("digit_cnn", 3, 4)


@dataclass(frozen=True, eq=False)
class Observed(Work):
    """Work that keeps the networks it hands out."""

    networks: list = field(default_factory=list)

    def network(self):
        self.networks.append(super().network().eval())  # no dropout: passes over the same samples then agree
        return self.networks[-1]


def parameters_of(network):
    return torch.cat([each.detach().flatten() for each in network.parameters()])


def after_one_update(prepare):
    work = Observed.of(SETTING)
    prepare(work)()
    (network,) = work.networks
    return parameters_of(network)


@pytest.mark.parametrize("contender", EVERYBODY, ids=lambda each: each.name)
def test_an_update_changes_the_parameters_a_little(contender):
    try:
        after = after_one_update(contender.prepare)
    except ModuleNotFoundError as error:
        assert contender.kind == "peer"
        pytest.skip(str(error))
    assert torch.isfinite(after).all()
    assert 0 < (after - parameters_of(Work.of(SETTING).network())).abs().max() < 0.1


def test_accumulation_is_the_step_of_one_large_batch():
    torch.testing.assert_close(after_one_update(accumulation), after_one_update(sgd))


def test_sgd_on_one_uses_the_first_mini_batch_alone():
    work = Observed.of(SETTING)
    (images, labels), network = work.batches[0], work.network()
    F.cross_entropy(network(images), labels).backward()
    optimizer_of(network).step()
    torch.testing.assert_close(after_one_update(sgd_on_one), parameters_of(network))


def test_ours_is_the_loop_of_the_readme():
    work = Observed.of(SETTING)
    network = work.network()
    optimizer = optimizer_of(network)
    bilevel = Bilevel(network, num_batches=3)
    bilevel.step_over(work.batches, lambda batch: F.cross_entropy(network(batch[0]), batch[1]))
    optimizer.step()
    torch.testing.assert_close(after_one_update(ours(Bilevel)), parameters_of(network), rtol=0, atol=0)


def test_with_and_without_a_jacobian_the_descent_is_the_same():
    pytest.importorskip("torchjd", reason="to compare: pip install 'torchjd[quadprog-projector]'")
    torch.testing.assert_close(after_one_update(jacobian_descent), after_one_update(gramian_descent))


def test_networks_and_samples_are_always_the_same():
    one, other = Work.of(SETTING), Work.of(SETTING)
    for mine, theirs in zip(one.batches, other.batches, strict=True):
        assert torch.equal(mine[0], theirs[0])
        assert torch.equal(mine[1], theirs[1])
    torch.rand(3)
    for mine, theirs in zip(one.network().parameters(), other.network().parameters(), strict=True):
        assert torch.equal(mine, theirs)
