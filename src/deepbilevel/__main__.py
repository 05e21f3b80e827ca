"""``python -m deepbilevel`` is the ``deepbilevel`` command, where the package that has it is installed."""

import runpy

runpy.run_module("deepbilevel_lab", run_name="__main__")
