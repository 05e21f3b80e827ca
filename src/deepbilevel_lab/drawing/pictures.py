"""Drawings as files: SVG as it is, PNG and PDF by a converter. The one file that knows this dependency."""

from io import BytesIO
from pathlib import Path
from types import ModuleType

from deepbilevel_lab.replacement import replacing

INSTALL = "pip install 'deepbilevel[cli]'"
_PIXELS_PER_UNIT = 2.0


def can_convert() -> bool:
    """Whether PNG and PDF can be made here."""
    return _load_converter() is not None


def write_drawing(svg: str, path: Path) -> None:
    """Write a drawing to ``path`` in the format its ending names: svg, png or pdf."""
    if path.suffix == ".svg":
        content = svg.encode()
    else:
        converter = _load_converter()
        if converter is None:
            raise ModuleNotFoundError(f"{path.name} cannot be made without vl-convert-python; run: {INSTALL}")
        is_png = path.suffix == ".png"
        content: bytes = (
            _smaller(converter.svg_to_png(svg, scale=_PIXELS_PER_UNIT)) if is_png else converter.svg_to_pdf(svg)
        )
    with replacing(path) as stream:
        stream.write(content)


def _smaller(png: bytes) -> bytes:
    """Return the same picture in about a quarter of the bytes: the converter hardly compresses."""
    from PIL import Image

    stream = BytesIO()
    with Image.open(BytesIO(png)) as picture:
        picture.save(stream, "png")
    return stream.getvalue()


def _load_converter() -> ModuleType | None:
    try:
        import vl_convert
    except ModuleNotFoundError:
        return None
    return vl_convert
