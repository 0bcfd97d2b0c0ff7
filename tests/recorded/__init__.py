"""Outputs of real machines that tests read; README.md names machine, source and what was trimmed."""

from pathlib import Path

HERE = Path(__file__).parent
OWN = HERE / "h200x8"
PUBLISHED = HERE / "published"
STUDIES = HERE / "studies"
