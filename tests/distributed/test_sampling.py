"""Processes that share a group draw the same groups and yield disjoint shares; the state does not depend on them."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import MatchedGroups
from tests.distributed.cases import place
from tests.distributed.test_exchange import refusal

K, SIZE = 5, 2
LABELS = [i % 3 for i in range(64)]
NUM_GROUPS = 6


def sampler(num_batches=K, **settings):
    return MatchedGroups(LABELS, num_batches=num_batches, batch_size=SIZE, seed=3, **settings)


def take(state=None, num_groups=2 * NUM_GROUPS):
    """Return the next mini-batches of a loader, group by group, and the state after each group."""
    groups = sampler()
    if state is not None:
        groups.load_state_dict(state)
    rank, size = place()
    own = len(range(rank, K, size))
    assert len(groups) == NUM_GROUPS * own
    taken, states, batches = [], [], []
    while len(taken) < num_groups:
        for (indices,) in DataLoader(TensorDataset(torch.arange(len(LABELS))), batch_sampler=groups):
            batches.append(indices.tolist())
            if len(batches) == own:
                taken.append(batches)
                states.append(groups.state_dict())
                batches = []
            if len(taken) == num_groups:
                break
    return taken, states


def merged(shares):
    """Put the groups together again: mini-batch i from rank i mod size."""
    return [[shares[i % len(shares)][g][i // len(shares)] for i in range(K)] for g in range(len(shares[0]))]


def test_shares_partition_every_group_and_states_are_those_of_one_process(processes):
    groups, states = take()
    answers = processes.run(take)
    assert merged([taken for taken, _ in answers]) == groups
    for _, theirs in answers:
        assert theirs == states


@pytest.mark.parametrize("done", [1, 4, 6])
def test_a_state_moves_between_any_numbers_of_processes(two, three, done):
    groups, _ = take()
    state = two.run(take)[1][1][done - 1]
    rest = 2 * NUM_GROUPS - done
    assert take(state, rest)[0] == groups[done:]
    for processes in (two, three):
        assert merged([taken for taken, _ in processes.run(take, state=state, num_groups=rest)]) == groups[done:]


def groups_counted_by_hand():
    groups = sampler()
    next(iter(groups))
    return groups.state_dict(num_groups=3)


def test_groups_that_training_has_finished_are_counted_over_all_processes(three):
    assert three.run(groups_counted_by_hand) == [groups_counted_by_hand()] * 3


def build_sampler(num_batches):
    sampler(num_batches)


def test_groups_with_too_few_mini_batches_are_refused(three):
    for said in three.run(refusal, make=build_sampler, num_batches=2):
        assert "num_batches=2 mini-batches cannot be spread over 3 processes" in said


def whole_groups():
    return list(sampler(process_group=False))


def test_a_process_that_opts_out_gets_whole_groups(two):
    assert two.run(whole_groups) == [list(sampler())] * 2
