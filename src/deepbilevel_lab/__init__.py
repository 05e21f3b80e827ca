"""The laboratory behind the ``deepbilevel`` command: data, noise, networks, training runs, comparisons and reports.

It builds on the library (``deepbilevel``), which never imports it. Importing it does not load torch.
"""


def __getattr__(name: str) -> str:
    """Look ``__version__`` up when it is asked for, in what is installed: neither needs torch, nor help to wait."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("deepbilevel")
