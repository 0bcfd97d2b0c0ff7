"""Writes dashboards/json: `make dashboards`."""

from pathlib import Path

from dashboards.boards import BOARDS
from dashboards.build import text

FOLDER = Path(__file__).parent / "json"


def files() -> dict[str, str]:
    """File names in dashboards/json, with what they hold."""
    return {f"{board.uid}.json": text(board) for board in BOARDS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in files().items():
        (FOLDER / name).write_text(content, "utf-8")
