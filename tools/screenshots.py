"""Make the screenshots of the front page again: `docs/img/diagnosis.png` and `docs/img/report.png`.

    python tools/screenshots.py [--demo out/demo]

The first is the page that `uncollapse diagnose RUN --html` writes about the collapsed run of the
demo, the second the upper part of the demo's own page. Runs `uncollapse demo` where its folder is
missing. Needs Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_IMAGES = Path("docs/img")
_SHARP = 1.6  # pixels of the picture to one of the page


def shoot(page: Path, picture: Path, width: int, height: int) -> None:
    """The upper part of a page, with few colours: sharp text in a small file."""
    browser = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"none of {', '.join(_BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as folder:
        taken = Path(folder) / "taken.png"
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
            f"--force-device-scale-factor={_SHARP}",
            f"--window-size={width},{height}",
            f"--screenshot={taken}",
        ]
        subprocess.run([browser, *flags, page.resolve().as_uri()], check=True, capture_output=True)
        few = Image.open(taken).convert("RGB").quantize(128, dither=Image.Dither.NONE)
        picture.parent.mkdir(parents=True, exist_ok=True)
        few.save(picture, optimize=True)
    print(f"wrote {picture}: {picture.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Take both pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--demo", type=Path, default=Path("out/demo"))
    demo = parser.parse_args().demo
    command = [sys.executable, "-m", "uncollapse"]
    if not (demo / "demo.html").is_file():
        subprocess.run([*command, "demo", "--out", str(demo)], check=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "diagnosis.html"
        collapsed = [*command, "diagnose", str(demo / "batch-hard"), "--html", str(page)]
        subprocess.run(collapsed, check=True)
        shoot(page, _IMAGES / "diagnosis.png", 1000, 456)
    shoot(demo / "demo.html", _IMAGES / "report.png", 1200, 868)


if __name__ == "__main__":
    main()
