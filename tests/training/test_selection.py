"""Images set aside for selection: never trained on, labels as noisy as the others, and what they pick."""

from dataclasses import replace

import pytest
import torch

from deepbilevel_lab.records import Row
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.training.run import train
from deepbilevel_lab.training.sets import load_sets
from tests.training.test_combinations import digits, started

SPEC = digits(noise="uniform:0.4", data__selection=0.1, data__limit=400, epochs=1)


def sets_of(spec, tmp_path):
    return load_sets(spec.data, tmp_path, noise=spec.noise, seed=spec.seed)


def pictures(data):
    return {tuple(image.flatten().tolist()) for image in data.images}


def test_what_is_set_aside_is_part_of_the_noisy_training_images_and_not_trained_on(tmp_path):
    sets, whole = sets_of(SPEC, tmp_path), sets_of(replace(SPEC, data=replace(SPEC.data, selection=None)), tmp_path)
    assert (len(sets.train), len(sets.selection), len(whole.train)) == (360, 40, 400)
    assert pictures(sets.train) | pictures(sets.selection) == pictures(whole.train)
    assert not pictures(sets.train) & pictures(sets.selection)
    assert torch.equal(sets.test.labels, whole.test.labels)
    assert whole.selection is None


def test_its_labels_are_as_wrong_as_the_others(tmp_path):
    spec = digits(noise="uniform:0.4", data__selection=0.3)
    sets = sets_of(spec, tmp_path)
    wrong = (sets.selection.labels != sets.selection.clean_labels).double().mean().item()
    # 431 images, of which four in ten are wrong in the whole: five standard deviations of a draw without return.
    assert wrong == pytest.approx(0.4, abs=5 * (0.4 * 0.6 / 431 * 0.7) ** 0.5)
    counts = torch.bincount(sets.selection.labels, minlength=10) / len(sets.selection)
    shares = torch.bincount(sets.train.labels, minlength=10) / len(sets.train)
    torch.testing.assert_close(counts, shares, rtol=0, atol=1.5 / len(sets.selection))


def test_the_same_images_are_set_aside_for_every_method_and_seed(tmp_path):
    first = sets_of(replace(SPEC, noise=None), tmp_path)
    other = sets_of(replace(SPEC, noise=None, seed=7), tmp_path)
    assert torch.equal(first.selection.images, other.selection.images)


@pytest.mark.parametrize("noise", [None, "uniform:0.4"])
def test_every_seed_may_set_other_images_aside(tmp_path, noise):
    spec = digits(noise=noise, data__limit=400, data__selection=0.2, data__selection_by_seed=True)
    sets = [sets_of(replace(spec, seed=seed), tmp_path) for seed in range(6)]
    numbers = [set(each.selection.numbers.tolist()) for each in sets]
    assert len(set.union(*numbers[:5])) == 5 * 80  # all images, each once
    assert numbers[5] == numbers[0]
    for each in sets:
        assert not set(each.selection.numbers.tolist()) & set(each.train.numbers.tolist())


def test_another_choice_for_every_seed_needs_images_set_aside():
    with pytest.raises(SpecError, match="selection_by_seed needs images set aside; say how many"):
        digits(data__selection_by_seed=True)


def test_every_evaluated_epoch_has_its_result_and_the_record_says_what_it_picks(tmp_path):
    record = train(replace(SPEC, epochs=3, evaluate_every=2), out=tmp_path, data_dir=tmp_path)
    assert [row.selection is not None for row in record.history] == [False, True, True]
    assert all(0 <= row.selection <= 100 for row in record.history[1:])
    assert record.figures["selection"] == record.history[-1].selection
    best = max(record.history[1:], key=lambda row: row.selection)
    assert record.figures["picked"] == best.test


def test_the_picked_epoch_is_the_first_of_the_best_on_selection_not_on_test(tmp_path):
    record = train(SPEC, out=tmp_path, data_dir=tmp_path)
    row = Row(epoch=1, lr=0.1, loss=1.0, negative_share=0.0)
    history = [
        replace(row, selection=selection, test=test)
        for selection, test in [(50.0, 90.0), (60.0, 70.0), (60.0, 80.0), (None, 99.0), (55.0, 85.0)]
    ]
    assert replace(record, history=tuple(history)).figures["picked"] == 70.0


def test_without_it_nothing_is_picked():
    loop = started(digits(data__limit=256, epochs=1))
    for _ in loop.run():
        pass
    assert loop.history[-1].selection is None


@pytest.mark.parametrize("share", [0, 1, -0.5, 2])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(SpecError, match=f"selection must be a share between 0 and 1, got {float(share)}; 0.1 is usual"):
        digits(data__selection=share)


def test_a_share_of_no_image_is_refused_when_images_are_known(tmp_path):
    spec = digits(data__selection=0.001, data__limit=100)
    with pytest.raises(ValueError, match=r"data.selection 0.001 of 100 images leaves a part without any"):
        sets_of(spec, tmp_path)
