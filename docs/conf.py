"""How Sphinx builds the documentation site: `make docs`, with every warning an error.

Pages are Markdown as the repository shows it. Three things are done here: links that leave docs/ are made to fit the
site; equations become MathML, so that a page needs no script and no network to show them; and numbers keep their
percent signs.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from sphinx.application import Sphinx

import deepbilevel

sys.path.insert(0, str(Path(__file__).parent))  # for `command_reference`

project = "deepbilevel"
version = release = deepbilevel.__version__
copyright = "the authors of deepbilevel"  # noqa: A001 (the name Sphinx reads)
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "command_reference"]
exclude_patterns = ["conf.py"]
html_theme = "furo"
html_title = f"deepbilevel {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
highlight_language = "text"  # of blocks that do not name theirs: commands and what they print
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.highlight-diff) > div.highlight > pre"
html_copy_source = html_show_sphinx = False
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
nitpicky = True
# Types of torch, numpy and Python have their documentation elsewhere, and no network is needed to build this one.
nitpick_ignore_regex = [
    ("py:.*", r"(?!deepbilevel).*"),
    (
        "py:class",
        r"deepbilevel\..*\.(ReportT|Batch|Shared|Blocks|\w*Gradients?|Part|Layout|Parameters)",
    ),  # type variables, aliases
]
suppress_warnings = ["config.cache"]

_ROOT = Path(__file__).parents[1]
_PAGES: Mapping[str, str] = {  # files outside docs/ and the pages that include them
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\]\\]|\\.)*)\]\((?!https?:|#)([^)\s#]+)(#[^)]*)?\)")
_CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def _fit_links(text: str, source: PurePosixPath, page: PurePosixPath) -> str:
    """Return a page of the repository with links as the site has them; what it does not hold is named instead.

    Args:
        text: Markdown.
        source: the file it stands in, seen from the root of the repository.
        page: the page of the site that shows it, seen from docs/.
    """
    up = "../" * (len(page.parts) - 1)

    def fitted(found: re.Match[str]) -> str:
        mark, words, target, anchor = found.groups(default="")
        path = _normal(source.parent / target)
        if path in _PAGES:
            return f"[{words}]({up}{_PAGES[path]}{anchor})"
        if path == "docs/decisions":
            return f"[{words}]({up}decisions/index.md)"
        if path.startswith("docs/"):
            return f"{mark}[{words}]({up}{path.removeprefix('docs/')}{anchor})"
        if path.startswith("examples"):
            return f"[{words}]({up}examples.md)"
        if "`" in words:
            return words
        return f"`{path}`" if path.startswith(words.strip("/")) else f"{words} in `{path}`"

    parts = _CODE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(fitted, part) for part in parts)


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _on_page(app: Sphinx, name: str, content: list[str]) -> None:
    page = PurePosixPath(f"{name}.md")
    content[0] = _fit_links(content[0], "docs" / page, page)


def _on_included(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    source = (_ROOT / "docs" / path).resolve().relative_to(_ROOT)
    if source.suffix == ".md":
        content[0] = _fit_links(content[0], PurePosixPath(source.as_posix()), PurePosixPath(f"{parent}.md"))


def _bind_percents(app: Sphinx, doctree: Any, name: str) -> None:
    """Keep a number and its percent sign on one line."""
    from docutils import nodes

    for text in list(doctree.findall(nodes.Text)):
        if " %" in text and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            text.parent.replace(text, nodes.Text(re.sub(r"(?<=\d) %", "\u00a0%", text)))


def _show_inline(self: Any, node: Any) -> None:
    self.body.append(convert(node.astext()))
    raise _skipping()


def _show_block(self: Any, node: Any) -> None:
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise _skipping()


def _skipping() -> Exception:
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app: Sphinx) -> None:
    """Tell Sphinx of what is done here."""
    app.connect("source-read", _on_page)
    app.connect("include-read", _on_included)
    app.connect("doctree-resolved", _bind_percents)
    app.add_html_math_renderer("mathml", (_show_inline, None), (_show_block, None))
