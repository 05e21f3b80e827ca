"""The page of commands: whatever `deepbilevel` takes stands on it, in the section of its command."""

import html
import re

import pytest

from deepbilevel import __version__
from tests.cli.test_help import COMMANDS

STRAIGHT = str.maketrans({"\u2019": "'", "\u201c": '"', "\u201d": '"', "`": None})  # Sphinx sets typographic quotes


def plain(text):
    return " ".join(text.translate(STRAIGHT).split())


@pytest.fixture(scope="module")
def sections(site):
    _, *parts = re.split(r'<section[^>]* id="([\w-]+)">', (site / "commands.html").read_text())
    texts = (plain(html.unescape(re.sub("<[^>]+>", "", part))) for part in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "deepbilevel")
def test_the_section_of_a_command_says_what_it_takes(sections, words):
    section = sections["-".join(words) or "deepbilevel"]
    assert plain(COMMANDS[words].help) in section
    for each in COMMANDS[words].params:
        if getattr(each, "hidden", False):
            assert not any(name in section for name in each.opts)
        else:
            is_option = each.param_type_name == "option"
            names = [*each.opts, *each.secondary_opts] if is_option else [each.metavar or each.name]
            assert all(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", section) for name in names), names
            assert plain(each.help) in section


def test_every_page_shows_the_version(site):
    assert all(f"deepbilevel {__version__}" in page.read_text() for page in site.rglob("*.html"))
