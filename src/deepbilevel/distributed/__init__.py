"""Several processes, asked for by :func:`share`; the only room that knows ranks and ``torch.distributed``."""

from deepbilevel.distributed.sharing import share

__all__ = ["share"]
