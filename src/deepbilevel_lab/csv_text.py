"""CSV of texts that strangers may have chosen: rows stay rows, and no spreadsheet takes a text for a formula."""

import csv
import io
from collections.abc import Iterable, Sequence


def to_csv(rows: Iterable[Sequence[str]]) -> str:
    r"""Return rows as CSV that end in a line feed each; a carriage return within a field is quoted, too.

    >>> to_csv([["a,b", "c\rd"]])
    '"a,b","c\rd"\n'
    """
    lines: list[str] = []
    for row in rows:
        text = io.StringIO()
        # Python quotes what occurs in the end of a line, and in some versions nothing else of its kind.
        csv.writer(text, lineterminator="\r\n").writerow(row)
        lines.append(text.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def without_formula(field: str) -> str:
    """Return a text that a spreadsheet shows as it is; numbers stay numbers.

    >>> without_formula("=1+1"), without_formula("-0.5")
    ("'=1+1", '-0.5')
    """
    if not field.lstrip().startswith(("=", "+", "-", "@")) and not field.startswith(("\t", "\r", "\n")):
        return field
    try:
        float(field)
    except ValueError:
        return "'" + field
    return field
