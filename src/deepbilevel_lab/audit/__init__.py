"""Which labels of a data set are wrong, from what a run has seen of them: tables, and a page to decide on."""

from deepbilevel_lab.audit.findings import Findings, find_issues
from deepbilevel_lab.audit.writing import Written, write_findings

__all__ = ["Findings", "Written", "find_issues", "write_findings"]
