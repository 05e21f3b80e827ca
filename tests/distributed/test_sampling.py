"""Processes that share a group draw the same groups and yield disjoint shares; the state does not depend on them."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import MatchedGroups
from deepbilevel.distributed import share
from deepbilevel.sampling.draws import Part
from tests.distributed.cases import place
from tests.distributed.test_exchange import refusal

K, SIZE = 5, 2
LABELS = [i % 3 for i in range(64)]
NUM_GROUPS = 6


def sampler(spread="batches", num_batches=K):
    return share(MatchedGroups(LABELS, num_batches=num_batches, batch_size=SIZE, seed=3), spread)


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
    sampler(num_batches=num_batches)


def test_groups_with_too_few_mini_batches_are_refused(three):
    for said in three.run(refusal, make=build_sampler, num_batches=2):
        assert "num_batches=2 mini-batches cannot be spread over 3 processes" in said


def take_parts(spread, state=None, num_epochs=2, shared_first=True):
    """Return the mini-batches of the next epochs, group by group, and the state after each group."""
    groups = sampler(spread) if shared_first else sampler("nothing")
    if state is not None:
        groups.load_state_dict(state)
    groups = groups if shared_first else share(groups, spread)
    taken, states, batches = [], [], []
    for _ in range(num_epochs):
        for batch in groups:
            batches.append(batch)
            if len(batches) == K:
                taken.append(batches)
                states.append(groups.state_dict())
                batches = []
    assert not batches
    return taken, states, (len(groups), groups.num_groups, groups.state_dict(num_groups=1))


def test_processes_with_groups_of_their_own_take_turns(several):
    groups, states, _ = take_parts("batches")
    answers = several.run(take_parts, spread="groups")
    size = len(answers)
    rounds = [[taken[i] for taken, _, _ in answers] for i in range(len(answers[0][0]))]
    assert [each for turn in rounds for each in turn] == groups  # 6 groups are whole rounds of 2 and of 3
    for taken, theirs, lengths in answers:
        assert len(taken) == 2 * NUM_GROUPS // size
        assert theirs == states[size - 1 :: size]
        assert lengths == (NUM_GROUPS // size * K, NUM_GROUPS // size, states[NUM_GROUPS + size - 1])


def in_rounds_of_four(num_epochs=2):
    """What the groups of an epoch are to the fourth of four processes: two of six are left over."""
    part = Part(3, 4, "groups", K)
    groups = sampler()
    return [part.of_epoch(groups._epoch(epoch)).tolist() for epoch in range(num_epochs)]


def test_what_is_left_over_at_the_end_of_an_epoch_is_left_out():
    groups, _, _ = take_parts("batches")
    assert in_rounds_of_four() == [[groups[3]], [groups[NUM_GROUPS + 3]]]


def build_larger(batch_size):
    share(MatchedGroups(LABELS, num_batches=K, batch_size=batch_size, seed=3), "groups")


def test_every_process_needs_a_group(three):
    assert three.run(refusal, make=build_larger, batch_size=4) == [None] * 3
    for said in three.run(refusal, make=build_larger, batch_size=6):
        assert "share(..., 'groups') over 3 processes needs a group for each, but there are images for 2" in said


@pytest.mark.parametrize(("done", "next_group"), [(2, 2), (3, 4), (4, 4), (5, NUM_GROUPS), (6, NUM_GROUPS)])
def test_a_state_of_one_process_goes_on_with_the_next_whole_round(two, done, next_group):
    groups, states, _ = take_parts("batches")
    end = NUM_GROUPS if next_group < NUM_GROUPS else 2 * NUM_GROUPS
    for first in (True, False):
        answers = two.run(take_parts, spread="groups", state=states[done - 1], num_epochs=1, shared_first=first)
        taken = [each for pair in zip(*(taken for taken, _, _ in answers), strict=True) for each in pair]
        assert taken == groups[next_group:end]


def resumed_in_mid_group():
    groups = sampler("groups")
    batches = iter(groups)
    before = [next(batches) for _ in range(K + 2)]
    other = sampler("groups")
    other.load_state_dict(groups.state_dict())
    return before + list(other)


def test_a_pass_that_is_broken_off_goes_on_where_it_was(two):
    answers, whole = two.run(resumed_in_mid_group), two.run(take_parts, spread="groups", num_epochs=1)
    for batches, (taken, _, _) in zip(answers, whole, strict=True):
        assert batches == [batch for each in taken for batch in each]


def test_images_of_every_mini_batch_are_dealt_out_and_their_labels_still_match(two):
    groups, states, _ = take_parts("batches")
    (first, theirs, _), (second, _, _) = two.run(take_parts, spread="images")
    for whole, *parts in zip(groups, first, second, strict=True):
        assert [list(each) for each in zip(*parts, strict=True)] == [[batch[0::2], batch[1::2]] for batch in whole]
        for part in parts:
            assert len({tuple(LABELS[i] for i in batch) for batch in part}) == 1
    assert theirs == states


def build_uneven():
    sampler("images")


def test_images_that_cannot_be_dealt_out_evenly_are_refused(three):
    for said in three.run(refusal, make=build_uneven):
        assert "batch_size=2 images cannot be spread evenly over 3 processes" in said


def whole_groups():
    return list(sampler("nothing"))


def test_a_process_that_opts_out_gets_whole_groups(two):
    assert two.run(whole_groups) == [list(sampler())] * 2
