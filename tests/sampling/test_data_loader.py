"""The sampler inside a ``DataLoader``, in one process and with workers that fetch ahead."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import MatchedGroups
from tests.sampling.claims import shuffled_labels

LABELS = torch.from_numpy(shuffled_labels([20, 10]))
DATA = TensorDataset(torch.arange(30), LABELS)


def build() -> MatchedGroups:
    return MatchedGroups(LABELS, num_batches=3, batch_size=2, seed=5)


def test_a_data_loader_delivers_what_the_sampler_yields():
    loader, expected = DataLoader(DATA, batch_sampler=build()), build()
    assert len(loader) == len(expected)
    for _ in range(2):
        assert [images.tolist() for images, _ in loader] == list(expected)


@pytest.mark.slow
def test_a_data_loader_with_workers_delivers_the_same_and_resumes_from_the_groups_it_trained_on():
    groups, expected = build(), build()
    # Spawned rather than forked: a fork of a process with threads is a warning in Python 3.12, and so an error here.
    loader = DataLoader(
        DATA, batch_sampler=groups, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
    )
    for _ in range(2):
        unbroken = list(expected)
        resumed = build()
        for number, (images, _) in enumerate(loader, start=1):
            assert images.tolist() == unbroken[number - 1]
            if number == 6:
                assert groups.state_dict()["position"] > 6  # the loader has fetched ahead
                resumed.load_state_dict(groups.state_dict(num_groups=2))
        assert number == len(unbroken) == 15
        assert list(resumed) == unbroken[6:]
