"""How a group is collected and shared between processes: what rules exchange, and when.

Who runs where is ``distributed/``. Rules see a ``WholeGroup``; how it is shared is chosen once, when a step is made.
"""

from deepbilevel.sharing.choosing import share_group
from deepbilevel.sharing.spreading import Spread, note_sampler
from deepbilevel.sharing.whole_group import Blank, wide_zeros

__all__ = ["Blank", "Spread", "note_sampler", "share_group", "wide_zeros"]
