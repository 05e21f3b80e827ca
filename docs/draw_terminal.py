"""Draws a run as a terminal shows it: ``python docs/draw_terminal.py`` trains and writes ``docs/images/train.svg``."""

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

COMMAND = "deepbilevel train --data digits --noise uniform:0.4 --method cross-validated --batch-size 4 --epochs 12"
PICTURE = Path(__file__).parent / "images" / "train.svg"
_COLUMNS = 116
# A page must not ask other hosts for a font.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def shown(command: str) -> list[str]:
    """Run a command on a terminal of its own, in an empty folder, and return the lines it leaves on the screen."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(_COLUMNS), "TERM": "xterm-256color"}
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", *command.split()]
        running = subprocess.Popen(words, cwd=folder, env=environment, stdout=writer, stderr=writer)
        os.close(writer)
        printed = bytearray()
        try:
            while chunk := os.read(reader, 65536):
                printed += chunk
        except OSError:  # how Linux says that nobody writes any more
            pass
        if running.wait():
            sys.exit(printed.decode())
    return printed.decode().replace("\r\n", "\n").rstrip().split("\n")


def main() -> None:
    """Train, and write the picture."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=_COLUMNS, file=nowhere, force_terminal=True)
        console.print(f"[bold]$ {COMMAND}[/bold]", highlight=False)
        for line in shown(COMMAND):
            console.print(Text.from_ansi(line.rstrip("\r")))
        console.print()  # the last line would be cut off
        console.save_svg(str(PICTURE), title="", code_format=_FORMAT, unique_id="train")


if __name__ == "__main__":
    main()
