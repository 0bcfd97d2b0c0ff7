"""The clock port."""

import time


class SystemClock:
    """Unix and monotonic time of this machine."""

    def now(self) -> float:
        return time.time()

    def mono(self) -> float:
        return time.monotonic()
