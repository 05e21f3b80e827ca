"""Under the trainers of others an audit sees what it sees in a loop of one's own; checkpoints keep it."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import GroupStep, MatchedGroups
from deepbilevel.audit import LabelAudit
from deepbilevel.rules.bilevel import BilevelRule
from tests.integrations.tasks import BATCH_SIZE, SEED, K, make_data, make_network

INPUTS, LABELS = make_data()
INDEX = torch.arange(len(LABELS))


def expected():
    """Return the audit of two epochs in a loop of one's own."""
    model, audit = make_network(), LabelAudit(LABELS, num_classes=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = GroupStep(model, BilevelRule(), num_batches=K)
    groups = MatchedGroups(LABELS, num_batches=K, batch_size=BATCH_SIZE, seed=SEED)
    for _ in range(2):
        for x, y, index in DataLoader(TensorDataset(INPUTS, LABELS, INDEX), batch_sampler=groups):
            logits = model(x)
            audit.observe(index, logits)
            step.backward(F.cross_entropy(logits, y))
            if step.full:
                step.fill()
                optimizer.step()
                optimizer.zero_grad()
    return audit


def check_same(audit):
    theirs = expected()
    assert np.array_equal(audit.visits, theirs.visits)
    np.testing.assert_allclose(audit.pred_probs(), theirs.pred_probs(), atol=1e-3)  # of 16 bits
    np.testing.assert_allclose(audit.scores("margin"), theirs.scores("margin"), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings(
    "ignore:.*(many workers|LeafSpec|_pytree|treespec|litlogger|Checkpoint dir|logging interval)"
)
def test_lightning(tmp_path):
    own = pytest.importorskip("tests.integrations.test_lightning", reason="lightning is missing")
    from deepbilevel.integrations.lightning import AuditCallback

    class Audited(own.Module):
        def training_step(self, batch, batch_idx):
            x, y, index = batch
            logits = self.network(x)
            return {"loss": F.cross_entropy(logits, y), "logits": logits, "index": index}

    def run(module, **options):
        callback, watching = own.BilevelCallback(K), AuditCallback(LabelAudit(LABELS, num_classes=3))
        saving = own.ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3, save_top_k=-1)
        data = TensorDataset(INPUTS, LABELS, INDEX)
        loader = callback.loader(data, LABELS, batch_size=BATCH_SIZE, seed=SEED)
        own.make_trainer(callback, tmp_path, callbacks=[watching, saving]).fit(module, loader, **options)
        return watching.audit

    check_same(run(Audited()))
    check_same(run(Audited(), ckpt_path=tmp_path / "step=3.ckpt"))

    class Silent(own.Module):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch[:2], batch_idx)

    with pytest.raises(ValueError, match="let training_step return"):
        run(Silent())


def test_hugging_face(tmp_path):
    own = pytest.importorskip("tests.integrations.test_transformers", reason="transformers is missing")

    class Samples(own.Samples):
        def __getitem__(self, index):
            return {**super().__getitem__(index), "index": index}

    def run(samples, resume=None):
        trainer = own.make_trainer(tmp_path, save_strategy="steps", save_steps=3)
        trainer.train_dataset, trainer.audit = samples, LabelAudit(LABELS, num_classes=3)
        trainer.train(resume_from_checkpoint=resume)
        return trainer.audit

    check_same(run(Samples()))
    check_same(run(Samples(), resume=str(tmp_path / "checkpoint-3")))
    with pytest.raises(ValueError, match="give each item a key 'index'"):
        run(own.Samples())
