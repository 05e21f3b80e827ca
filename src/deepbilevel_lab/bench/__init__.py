"""How fast, and how much memory: our rules beside plain loops and beside what one would install instead.

Nothing here is needed for training. ``contenders.py`` says who is compared, ``measuring.py`` what is measured.
"""

from deepbilevel_lab.bench.measuring import FULL, QUICK, Plan, Record, Row, look_closer, measure
from deepbilevel_lab.bench.work import Setting

__all__ = ["FULL", "QUICK", "Plan", "Record", "Row", "Setting", "look_closer", "measure"]
