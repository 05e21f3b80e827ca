"""Images that are something else than their names say: only plain formats are decoded, by Pillow alone."""

import os
import subprocess
import sys

import pytest
from PIL import Image

from deepbilevel_lab.data.decode import decode_rgb

POSTSCRIPT = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 40 30
%%EndComments
0 0 40 30 rectfill
showpage
"""


def test_postscript_under_the_name_of_a_photo_reaches_no_interpreter(tmp_path):
    """Pillow starts ``gs`` for PostScript, whatever the file is called; ours must not."""
    (tmp_path / "bin").mkdir()
    trace = tmp_path / "started"
    ghostscript = tmp_path / "bin" / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {trace}\n")
    ghostscript.chmod(0o755)
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(POSTSCRIPT)
    environment = os.environ | {"PATH": f"{ghostscript.parent}:{os.environ['PATH']}"}
    ours = "from deepbilevel_lab.data.decode import decode_rgb as read"
    theirs = "from PIL import Image; read = lambda path: Image.open(path).load()"
    for code, started in ((ours, False), (theirs, True)):
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\nread({str(photo)!r})"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert trace.exists() == started, done.stderr
    with pytest.raises(ValueError, match=r"photo.jpg .* is not an image of a known format \(JPEG, PNG, .*; fetch"):
        decode_rgb(photo)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM"])
def test_known_formats_are_read_under_any_name(name, tmp_path):
    Image.new("RGB", (4, 3), "white").save(tmp_path / "photo.jpg", format=name)
    assert decode_rgb(tmp_path / "photo.jpg").size == (4, 3)
