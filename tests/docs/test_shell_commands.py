"""Every `deepbilevel` command in the documents is one that the program understands; those on digits can be planned."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_help import COMMANDS
from tests.cli.trained import run_in_process

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?:text|bash|)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands():
    """Yield the commands of all pages, without comments and prompts, lines that go on joined."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.match(r"(?:\$ )?(?:torchrun .* -m )?deepbilevel (.*)", line)
                if found and "..." not in line:
                    plain = re.sub(r"\$\(.*?\)", "FILE", re.sub(r" > \S+", "", found[1]))  # what a shell does first
                    yield pytest.param(shlex.split(plain, comments=True), id=f"{page.stem}: {plain[:60]}")


ALL = list(commands())
KNOWN_DATA = {"digits", "cifar10"}  # other commands name files of the reader


def can_be_planned(words):
    return (
        words[0] in ("train", "compare")
        and KNOWN_DATA & set(words)
        and "--list" not in words
        and "my_rules" not in str(words)
    )


def named(words):
    """Return a command and what it is given."""
    length = 2 if tuple(words[:2]) in COMMANDS else 1
    return COMMANDS[tuple(words[:length])], words[length:]


@pytest.mark.parametrize("words", ALL)
def test_the_command_is_understood(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, given = named(words)
    for word in given:  # what a reader has: files and folders of these names
        if re.fullmatch(r"[\w/-]+\.\w+", word):
            (tmp_path / word).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / word).touch()
        elif re.fullmatch(r"[\w./<>-]+/?", word) and ("/" in word or word == "runs"):
            (tmp_path / word).mkdir(parents=True, exist_ok=True)
    command.make_context(command.name, list(given))  # raises what a user would be told


@pytest.mark.parametrize("words", [each for each in ALL if can_be_planned(*each.values)])
def test_the_command_can_be_planned(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run_in_process(*words, "--dry-run")
    assert done.exit_code == 0, done.output
