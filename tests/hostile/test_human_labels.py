"""Human labels that are not the published ones are told; labels of other images are refused."""

import numpy as np
import pytest
import torch

from deepbilevel_lab.data.cifar import load_human_labels


def test_unknown_answers_are_told_and_read(tmp_path):
    clean = np.arange(50_000) % 10
    answers = np.where(np.arange(50_000) < 500, (clean + 1) % 10, clean)
    (tmp_path / "cifar-10n").mkdir()
    np.savez(tmp_path / "cifar-10n" / "labels.npz", clean=clean, worst=answers)
    with pytest.warns(UserWarning, match=r"labels 'worst' are not those of CIFAR-10N that we know; 1\.00% of them"):
        found = load_human_labels("cifar10", tmp_path, "worst", torch.from_numpy(clean))
    assert torch.equal(found, torch.from_numpy(answers))
    with pytest.raises(ValueError, match="in another order"):
        load_human_labels("cifar10", tmp_path, "worst", torch.from_numpy(np.roll(clean, 1)))
