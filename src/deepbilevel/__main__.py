"""``python -m deepbilevel`` is the ``deepbilevel`` command."""

from deepbilevel.cli import main

main()
