"""The page on which a person decides about suspicious labels: one file with everything in it.

Names of classes and files, and cells of tables, come from strangers. The template escapes them, the script only ever
sets text, and the page forbids itself every other script and every request. Pictures and curves stand behind the
script, in parts that a browser reads and does not interpret: so the page is there before they are, however many.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from deepbilevel_lab import __version__
from deepbilevel_lab.drawing.looks import DARK, LIGHT, variables
from deepbilevel_lab.drawing.pages import read_page_file, script_hash, templates_of

_ROOM = "deepbilevel_lab.audit"


def make_page(
    title: str,
    facts: list[str],
    rows: Mapping[str, Any],
    *,
    curves: bytes,
    sheets: Iterable[Sequence[bytes]],
    noun: str = "image",
) -> Iterator[bytes]:
    """Yield the page in parts: with all pictures it may not fit into memory.

    Args:
        title: of the data set.
        facts: what is said at the top, a sentence each.
        rows: what the script needs, as JSON knows it.
        curves: of the rows, a byte per point.
        sheets: the pictures in base64, so many at a time.
        noun: what one of the samples is called.
    """
    script = read_page_file(_ROOM, "stored.js") + read_page_file(_ROOM, "page.js")
    # A script of type application/json is never run, and ends at the first "<" it could end at: there is none.
    content = json.dumps(rows, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page = (
        templates_of(_ROOM)
        .get_template("page.html")
        .render(
            title=title,
            facts=facts,
            noun=noun,
            rows=Markup(content),
            script=script,
            script_hash=script_hash(script),
            style=read_page_file(_ROOM, "page.css"),
            light=variables(LIGHT),
            dark=variables(DARK),
            version=__version__,
        )
    )
    head, end, tail = page.rpartition("</body>")
    yield head.encode()
    yield _inert("curves", b64encode(curves))
    for number, pictures in enumerate(sheets):
        yield _inert(f"pictures-{number}", b"\n".join(pictures))
    yield (end + tail).encode()


def _inert(name: str, content: bytes) -> bytes:
    return f'<script type="text/plain" id="{name}">'.encode() + content + b"</script>\n"
