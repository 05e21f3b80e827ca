"""An audit of several processes is that of one that saw everything."""

import numpy as np
import pytest
import torch
from torch import distributed as dist

from deepbilevel.audit import LabelAudit
from tests.audit.reference import visits_of_epochs

LABELS = np.random.RandomState(0).randint(0, 3, 60)
SCORES = ["probability", "margin", "hit_rate", "agreement"]


def observe(audit, share=lambda position: True):
    for position, (indices, logits, features) in enumerate(visits_of_epochs(60, 3, epochs=6, batch_size=10)):
        if share(position):
            audit.observe(indices, logits, features=features)
    return audit


def audit_part():
    rank, size = dist.get_rank(), dist.get_world_size()
    audit = observe(LabelAudit(LABELS, num_classes=3), lambda position: position % size == rank)
    before = audit.state_dict()
    whole = audit.gathered()
    unchanged = all(
        torch.equal(torch.as_tensor(before[name]), torch.as_tensor(v)) for name, v in audit.state_dict().items()
    )
    return whole.state_dict(), {name: whole.scores(name) for name in SCORES}, unchanged


def audit_other_labels():
    try:
        LabelAudit(LABELS if dist.get_rank() else 2 - LABELS, num_classes=3).gathered()
    except ValueError as error:
        return str(error)
    return None


def test_gathered_parts_are_the_whole(processes):
    whole = observe(LabelAudit(LABELS, num_classes=3))
    answers = processes.run(audit_part)
    size = len(answers)
    parts = [observe(LabelAudit(LABELS, num_classes=3), lambda at, r=r: at % size == r) for r in range(size)]
    assert torch.equal(answers[0][0]["curves"], parts[0].merged(*parts[1:]).state_dict()["curves"])
    for state, scores, unchanged in answers:
        assert unchanged
        assert torch.equal(state["visits"], whole.state_dict()["visits"])
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(answers[0][0][name]))
        for name in SCORES:
            within = 1e-4 if name == "probability" else 1e-5
            np.testing.assert_allclose(scores[name], whole.scores(name), atol=within)


def test_other_labels_are_refused_in_all_processes(several):
    assert all("different labels" in answer for answer in several.run(audit_other_labels))


def test_alone_it_is_a_copy():
    audit = observe(LabelAudit(LABELS, num_classes=3))
    copy = audit.gathered()
    audit.observe([0], torch.zeros(1, 3))
    assert (copy.visits == 6).all()
    with pytest.raises(ValueError, match="not initialised"):
        audit.gathered(object())
