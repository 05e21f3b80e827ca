"""Which labels are wrong: what a training run has seen of every label, collected without a further pass."""

from deepbilevel.audit.label_audit import LabelAudit
from deepbilevel.audit.mixture import NoiseRate
from deepbilevel.audit.scores import Score
from deepbilevel.audit.table import Issue, Issues

__all__ = ["Issue", "Issues", "LabelAudit", "NoiseRate", "Score"]
