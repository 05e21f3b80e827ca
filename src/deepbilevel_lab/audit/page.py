"""The page on which a person decides about suspicious labels: one file, and sheets of small pictures beside it.

Rows of a table stand in the page itself. Their cells, and names of classes and files, come from strangers. The template
escapes them, the script only ever sets text, and the page forbids itself every other script and every request but for
pictures.
"""

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from deepbilevel_lab import __version__
from deepbilevel_lab.drawing.looks import DARK, LIGHT, variables
from deepbilevel_lab.drawing.pages import read_page_file, script_hash, templates_of

_ROOM = "deepbilevel_lab.audit"


def make_page(title: str, facts: list[str], rows: Mapping[str, Any], *, noun: str = "image") -> str:
    """Return the page.

    Args:
        title: of the data set.
        facts: what is said at the top, a sentence each.
        rows: what the script needs, as JSON knows it.
        noun: what one of the samples is called.
    """
    script = read_page_file(_ROOM, "page.js")
    # A script of type application/json is never run, and ends at the first "<" it could end at: there is none.
    content = json.dumps(rows, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
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
