"""Choosing by name: what a user meant, or an error that says what it may have been. Knows no catalog."""

from collections.abc import Collection
from difflib import get_close_matches


def choose(what: str, given: str, known: Collection[str]) -> str:
    """Return ``given`` if it is among the names that are known.

    >>> choose("data set", "cifar11", ["digits", "cifar10"])
    Traceback (most recent call last):
    ValueError: unknown data set 'cifar11'; did you mean 'cifar10'? There are: digits, cifar10
    """
    if given in known:
        return given
    if not known:
        raise ValueError(f"unknown {what} {given!r}; there is none")
    by_lower_case = {name.lower(): name for name in known}
    near = get_close_matches(given.lower(), by_lower_case, n=1, cutoff=0.4)
    hint = f"did you mean {by_lower_case[near[0]]!r}? " if near else ""
    raise ValueError(f"unknown {what} {given!r}; {hint}There are: {', '.join(known)}")
