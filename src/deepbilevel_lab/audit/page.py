"""The page on which a person decides about suspicious labels: one file, and sheets of small pictures beside it.

Names of classes and files come from strangers. The template escapes them, the script only ever sets text, and the page
forbids itself every other script and every request but for pictures.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from deepbilevel_lab import __version__
from deepbilevel_lab.drawing.looks import DARK, LIGHT, variables

_FILES = "page_files"


def make_page(title: str, facts: list[str], rows: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        title: of the data set.
        facts: what is said at the top, a sentence each.
        rows: what the script needs, as JSON knows it.
    """
    script = _read("page.js")
    # A script of type application/json is never run, and ends at the first "<" it could end at: there is none.
    content = json.dumps(rows, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        _templates()
        .get_template("page.html")
        .render(
            title=title,
            facts=facts,
            rows=Markup(content),
            script=script,
            script_hash="sha256-" + b64encode(sha256(f"\n{script}".encode()).digest()).decode(),
            style=_read("page.css"),
            light=variables(LIGHT),
            dark=variables(DARK),
            version=__version__,
        )
    )


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("deepbilevel_lab.audit", _FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _read(name: str) -> Markup:
    """Return a file of ours that goes into the page as it is."""
    return Markup((resources.files("deepbilevel_lab.audit") / _FILES / name).read_text(encoding="utf-8"))
