"""Help: every command explains itself with an example, at once."""

import os
import subprocess
import sys

import pytest
import typer.main

from deepbilevel_lab.cli.app import ImportedLater, app


def commands(command, words=()):
    command = command.load() if isinstance(command, ImportedLater) else command
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


COMMANDS = dict(commands(typer.main.get_command(app)))
LEAVES = [words for words, command in COMMANDS.items() if not hasattr(command, "commands")]


def test_the_commands_are_all_there():
    assert {words[0] for words in LEAVES} >= {
        "train",
        "evaluate",
        "predict",
        "runs",
        "doctor",
        "demo",
        "data",
        "report",
    }


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_the_help_of_a_command_shows_an_example(words):
    assert f"Example: deepbilevel {' '.join(words)}" in COMMANDS[words].help


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_option_says_what_it_is_for(words):
    assert all(option.help for option in COMMANDS[words].params if option.name != "help")


def test_no_help_page_loads_torch_or_ray():
    pages = [[*words, "--help"] for words in COMMANDS]
    code = f"""
import sys
from typer.testing import CliRunner
from deepbilevel_lab.cli.app import app
for page in {pages}:
    result = CliRunner().invoke(app, page)
    assert result.exit_code == 0, result.output
assert not {{"torch", "ray", "deepbilevel"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_list_of_commands_says_what_each_says_itself():
    listed = typer.main.get_command(app).commands
    first_lines = {name: COMMANDS[name,].help.splitlines()[0] for name in listed}
    assert {name: command.help for name, command in listed.items()} == first_lines


def test_the_list_of_commands_loads_none_of_them():
    code = """
import sys
from typer.testing import CliRunner
from deepbilevel_lab.cli.app import app
assert "predict" in CliRunner().invoke(app, ["--help"]).output
ours = {name for name in sys.modules if name.startswith("deepbilevel")}
assert ours == {"deepbilevel_lab", "deepbilevel_lab.cli", "deepbilevel_lab.cli.app"}, ours
assert "importlib.metadata" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_the_command(shell):
    code = "from deepbilevel_lab.cli import main; import sys; sys.argv[0] = 'deepbilevel'; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "_DEEPBILEVEL_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": "deepbilevel tr",
            "COMP_WORDS": "deepbilevel tr",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
    )
    assert "train" in done.stdout
