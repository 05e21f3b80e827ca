"""The directive ``commands``: every command of ``deepbilevel`` with its options, taken from the commands themselves.

Extensions for click do not work here: Typer has a click of its own, and the commands are imported when they are called.
"""

import re
from collections.abc import Iterator
from typing import Any

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command

from deepbilevel_lab.cli.app import ImportedLater, app

_COMMAND_LINE = re.compile(r": ((?:deepbilevel|torchrun) .+)$", re.MULTILINE)
_CODE = re.compile(r"`[^`]+`|(?<!\S)--[-\w]+")


def _sections(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the Markdown of a command and of the commands in it."""
    command = command.load() if isinstance(command, ImportedLater) else command
    yield f"{'#' * max(len(words) + 1, 2)} {' '.join(words) or 'deepbilevel'}\n"
    yield _COMMAND_LINE.sub(r":\n```text\n\1\n```", command.help) + "\n"
    context = command.context_class(command)
    records = [record for each in command.params if (record := each.get_help_record(context))]  # none if hidden
    if records:
        yield "| name | meaning |\n|---|---|"
        yield from (f"| `{_in_cell(name)}` | {_in_cell(_text(help_text))} |" for name, help_text in records)
        yield ""
    for name, inner in getattr(command, "commands", {}).items():
        yield from _sections(inner, (*words, name))


def _text(plain: str) -> str:
    """Return plain text as Markdown that looks like it; options and what stands in backticks are code."""
    escaped = [re.sub(r"([\\\[\]<>*_$])", r"\\\1", part) for part in _CODE.split(plain)]
    code = [f"`{found.strip('`')}`" for found in _CODE.findall(plain)]
    return "".join(part for pair in zip(escaped, [*code, ""], strict=True) for part in pair)


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")


class _Commands(SphinxDirective):
    def run(self) -> list[Node]:
        text = "\n".join(_sections(get_command(app)))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directive, and that its page is never up to date: the code may have changed."""
    app.add_directive("commands", _Commands)
    app.connect("env-get-outdated", lambda *_: ["commands"])
    return {"parallel_read_safe": True}
