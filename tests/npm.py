"""Other people's scripts, which the tests run beside ours; they are in no way a part of the package."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest


def npm_file(package: str, path: str, folder: Path) -> str:
    """Return a file of a package as npm has it, such as ``npm_file("htmx.org@2.0.8", "dist/htmx.min.js", tmp_path)``.

    Skips the test where npm is not there, or cannot bring the package.
    """
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"npm is not there to bring {package}")
    packed = subprocess.run([npm, "pack", "--silent", package], cwd=folder, capture_output=True, text=True, check=False)
    if packed.returncode:
        pytest.skip(f"npm could not bring {package}: {packed.stderr[-300:]}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        archive.extractall(folder, filter="data")
    return (folder / "package" / path).read_text()
