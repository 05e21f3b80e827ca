"""``python -m deepbilevel_lab`` is the ``deepbilevel`` command."""

from deepbilevel_lab.cli import main

main()
