"""How a spec names another run whose results it starts from: ``run:`` and that run's id.

A run's id says everything about it, so a spec that names one is still a value. Where the other run lies is not part of
it; whoever builds a run looks for it among the runs beside it.
"""

import re

from deepbilevel_lab.specs import SpecError

_PREFIX = "run:"
_ID = re.compile(r"[0-9a-f]{10}")


def refer_to(run_id: str) -> str:
    """Return how a spec names that run.

    >>> refer_to("0123456789")
    'run:0123456789'
    """
    return _PREFIX + run_id


def referred_run(text: str | None, *, key: str = "reference") -> str | None:
    """Return the id of the run a value of a spec names, or None where it names none; ``key`` is for the error.

    >>> referred_run("run:0123456789"), referred_run("weights.pt"), referred_run(None)
    ('0123456789', None, None)
    """
    if text is None or not text.startswith(_PREFIX):
        return None
    run_id = text.removeprefix(_PREFIX)
    if not _ID.fullmatch(run_id):
        raise SpecError(
            f"{key} {text!r} names no run: an id is ten of the digits 0-9 and a-f, the last part of a run's folder"
        )
    return run_id
