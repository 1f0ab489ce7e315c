"""The inputs in the repository: for each target, a folder with seeds and with inputs that once failed."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
#: The beginning of the names of inputs that showed a defect.
FOUND = "found-"
#: The separator of files in an input of the target `checkpoints`; no file contains it.
SEPARATOR = b"\x00----\x00"


def inputs_of(target: str) -> list[Path]:
    """Return the inputs of this target, by name."""
    return sorted((FOLDER / target).iterdir())
