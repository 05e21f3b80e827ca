"""What our HTML pages have in common: templates that escape, files of ours, and the hash that allows a script.

A page forbids itself, by its content security policy, every script but the one with this hash.
"""

from base64 import b64encode
from hashlib import sha256
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_FILES = "page_files"


def templates_of(package: str) -> Environment:
    """Return the templates in a package's ``page_files``; whatever is not declared to be markup is escaped."""
    return Environment(
        loader=PackageLoader(package, _FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def read_page_file(package: str, name: str) -> Markup:
    """Return a file of ours that goes into a page as it is."""
    return Markup((resources.files(package) / _FILES / name).read_text(encoding="utf-8"))


def script_hash(script: str) -> str:
    """Return the hash of a script that stands in its element after a line break."""
    return "sha256-" + b64encode(sha256(f"\n{script}".encode()).digest()).decode()
