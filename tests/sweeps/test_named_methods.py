"""The catalogue: every name makes a run that trains, under the same conditions as all others."""

from pathlib import Path

import pytest
import torch

from deepbilevel.rules.catalog import RULES
from deepbilevel_lab.losses import LOSSES
from deepbilevel_lab.sweeps.comparison import plan
from deepbilevel_lab.sweeps.expressions import read_methods
from deepbilevel_lab.sweeps.named_methods import COMBINED, GROUPS, METHODS, names_of
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.loop import TrainingLoop
from tests.cli.trained import make_spec

ROOT = Path(__file__).parents[2]
SETTINGS = {"noise": "uniform:0.5", "data.test_limit": 60, "group.batch_size": 8, "epochs": 2}


def make_run(name, seed=0):
    [cell] = plan(make_spec(**SETTINGS), read_methods(name), [seed]).cells
    [spec] = cell.specs
    return build(spec, Path("no-files-are-needed"))


@pytest.fixture(scope="module")
def plain():
    return make_run("sgd", seed=3)


@pytest.mark.filterwarnings("ignore:the estimated transition has almost no inverse")  # an epoch teaches little
@pytest.mark.parametrize("name", [*METHODS, *COMBINED])
def test_every_method_trains_to_its_end(name):
    loop = TrainingLoop(make_run(name))
    for _ in loop.run():
        pass
    assert loop.samples == 512
    assert all(bool(torch.isfinite(parameter).all()) for parameter in loop.parts.model.parameters())


@pytest.mark.parametrize("name", [*METHODS, *COMBINED])
def test_every_method_starts_from_the_same_weights_and_labels_and_visits_as_many_images(name, plain):
    parts = make_run(name, seed=3)
    own, its = plain.model.state_dict(), parts.model.state_dict()
    assert own.keys() == its.keys()
    assert all(torch.equal(own[key], its[key]) for key in own)
    assert torch.equal(parts.train.data.labels, plain.train.data.labels)
    visits = [each.groups.num_groups * each.spec.group.size * each.spec.epochs for each in (plain, parts)]
    assert visits[0] == visits[1] == 512
    batches = next(iter(parts.train.groups(parts.groups, 0, 0, num_parts=parts.num_parts)))
    assert sum(len(batch.indices) for batch in batches) == parts.spec.group.size


def test_another_seed_has_other_weights_and_labels(plain):
    other = make_run("sgd", seed=4)
    assert not torch.equal(next(iter(other.model.parameters())), next(iter(plain.model.parameters())))
    assert not torch.equal(other.train.data.labels, plain.train.data.labels)


def test_an_image_looks_the_same_whichever_method_sees_it():
    """Augmentation follows from seed, epoch and place: methods that group images alike see the same pixels."""
    first, second = make_run("bilevel"), make_run("uniform")
    pairs = zip(
        *(next(iter(each.train.groups(each.groups, 0, 0, num_parts=each.num_parts))) for each in (first, second)),
        strict=True,
    )
    for one, other in pairs:
        assert torch.equal(one.images, other.images)


def test_all_methods_are_different_runs():
    cells = plan(make_spec(**SETTINGS), read_methods("all"), [0]).cells
    specs = {cell.row: cell.specs for cell in cells}
    assert set(specs) == {*METHODS, *COMBINED}
    assert len({spec.id for [spec] in specs.values()}) == len(specs)


def test_every_update_and_loss_there_is_has_a_name():
    settings = [method.settings for method in METHODS.values()]
    assert {each.get("method", "sgd") for each in settings} == set(RULES)
    assert {each.get("loss", "cross-entropy") for each in settings} == set(LOSSES)


def test_ghost_sgd_averages_the_gradients_of_mini_batches_drawn_as_sgd_draws_its_batch(plain):
    ghost = make_run("ghost-sgd", seed=3)
    [whole] = next(iter(plain.train.groups(plain.groups, 0, 0, num_parts=1)))
    parts = next(iter(ghost.train.groups(ghost.groups, 0, 0, num_parts=ghost.num_parts)))
    assert [len(part.indices) for part in parts] == [8] * 8
    assert torch.equal(torch.cat([part.indices for part in parts]), whole.indices)
    for network in (plain, ghost):  # without dropout, and without BatchNorm in this network, both are the same step
        network.model.eval()
    plain.step([whole])
    ghost.step(parts)
    for own, its in zip(plain.model.parameters(), ghost.model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, its.grad)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_in_one_line_and_in_a_group_and_in_the_documents(name):
    method = METHODS[name]
    assert method.group in GROUPS
    assert 10 < len(method.description) < 80
    assert f"`{name}`" in (ROOT / "docs" / "comparing.md").read_text()


def test_every_group_has_members_and_no_method_has_its_name():
    assert not {*GROUPS, "all"} & set(METHODS)
    members = [name for group in GROUPS for name in names_of(group)]
    assert sorted(members) == sorted([*METHODS, *COMBINED]) == sorted(names_of("all"))
    assert all(names_of(group) for group in GROUPS)


def test_combinations_are_of_names_that_are_there_and_in_the_documents():
    for name, group in COMBINED.items():
        assert set(name.split("+")) <= set(METHODS)
        assert group in GROUPS
        assert f"`{name}`" in (ROOT / "docs" / "comparing.md").read_text()
