"""SVG as PNG and PDF. The one file that knows the optional dependency."""

from types import ModuleType

INSTALL = "pip install 'deepbilevel[report]'"
_PIXELS_PER_UNIT = 2.0


def load_converter() -> ModuleType | None:
    """Return the converter, None if it is not installed."""
    try:
        import vl_convert
    except ModuleNotFoundError:
        return None
    return vl_convert


def to_png(converter: ModuleType, svg: str) -> bytes:
    """Return an SVG as PNG."""
    return converter.svg_to_png(svg, scale=_PIXELS_PER_UNIT)


def to_pdf(converter: ModuleType, svg: str) -> bytes:
    """Return an SVG as PDF."""
    return converter.svg_to_pdf(svg)
