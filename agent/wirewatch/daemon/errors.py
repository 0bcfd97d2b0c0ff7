"""Errors that are bugs: each is logged with its traceback once, however often it comes."""

import logging
import traceback


class ErrorLog:
    """Logs what parts of a program raise: a new error with its traceback, the same one again not at all.

    Errors are the same when they are raised at the same place, whatever their texts. How often one came is
    logged when the part works again, or raises something else.

    `failing`: the parts that raised something last, with where and how often.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self.failing: dict[str, tuple[object, int]] = {}

    def raised(self, part: str, error: BaseException) -> None:
        """The part raised this."""
        frames = traceback.walk_tb(error.__traceback__)
        place = (type(error), *((frame.f_code.co_filename, line) for frame, line in frames))
        last, times = self.failing.get(part, (None, 0))
        if last != place:
            self.worked(part)
            self._log.error("%s raised", part, exc_info=error)
            times = 0
        self.failing[part] = (place, times + 1)

    def worked(self, part: str) -> None:
        """The part raised nothing."""
        _, times = self.failing.pop(part, (None, 0))
        if times > 1:
            self._log.error("%s raised the same %d more times", part, times - 1)
