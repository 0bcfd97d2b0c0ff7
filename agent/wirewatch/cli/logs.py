"""Where logs go: standard error. Imported only by those that have something to log."""

import logging
import sys


def log_to_stderr(*, verbose: bool) -> None:
    """To standard error as it is now."""
    level = logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
