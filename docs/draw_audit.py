"""Draws docs/images/audit.png: the page of an audit, as a browser shows it. Run it after the page has changed.

python docs/draw_audit.py
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

_PICTURE = Path(__file__).parent / "images" / "audit.png"
_AUDIT = ("audit", "digits", "--noise=uniform:0.2", "--epochs=12", "--quiet")  # that of the README


def main() -> None:
    """Audit digits, open the page, and keep a picture of it."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("no browser; run: apt-get install -y --no-install-recommends chromium")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "deepbilevel", *_AUDIT, f"--out={folder}"], check=True)
        with sync_playwright() as playwright:
            running = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
            page = running.new_page(viewport={"width": 1000, "height": 1080}, device_scale_factor=1.5)
            page.goto((Path(folder) / "index.html").as_uri())
            page.screenshot(path=_PICTURE)
            running.close()


if __name__ == "__main__":
    main()
