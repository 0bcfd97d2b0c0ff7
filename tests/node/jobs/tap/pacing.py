"""Which calls the tap times, said once more in whole numbers, with nothing of the tap's code."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

BLOCK, MEMORY_MS, HOLD_MS, SOON_MS, UNIT, ROUNDS = 32, 5000, 10000, 100, 256, 8
_WORD = (1 << 64) - 1


def mixed(word: int) -> int:
    for _ in range(2):
        word = (word ^ word >> 31) * 0x9E3779B97F4A7C15 & _WORD
        word ^= word >> 29
    return word


def chosen(communicator: int, block: int, halvings: int) -> bool:
    """Whether a block is timed: with a stride of 2 to the power of `halvings`, one in so many is."""
    for level in range(halvings):
        if block & 1 != mixed(mixed(communicator ^ level) + (block >> 1) & _WORD) >> 63:
            return False
        block >>= 1
    return True


@dataclass
class Process:
    """The communicators of one process, which share its budget; milliseconds of one clock."""

    budget: int = 50
    communicators: list["Paced"] = field(default_factory=list)

    def communicator(self, number: int, now_ms: int) -> "Paced":
        made = Paced(self, number, counted_ms=now_ms, period_ms=now_ms)
        self.communicators.append(made)
        return made

    def share(self, now_ms: int) -> int:
        """What each may have, by needs in rising order: who needs less than an equal part leaves the rest."""
        level = 0
        for _ in range(ROUNDS):
            needs = [one.need(now_ms) for one in self.communicators]
            hungry = sum(need > level for need in needs)
            left = max(0, self.budget * MEMORY_MS // 1000 * UNIT - sum(n for n in needs if n <= level))
            if not hungry or left // hungry <= level:
                break
            level = left // hungry
        return level


@dataclass
class Paced:
    """One communicator as its tap sees it."""

    process: Process
    number: int
    counted_ms: int
    period_ms: int
    calls: int = 0
    warmth: int = 0
    most: int = 0
    before: int = 0
    begun: int = -1
    halvings: int = 0
    shared: tuple[int, int] = (0, -SOON_MS)

    def need(self, now_ms: int) -> int:
        age = max(0, now_ms - self.period_ms)
        if age >= 2 * HOLD_MS:
            return 0
        return max(self.most, self.before) if age < HOLD_MS else self.most

    def call(self, now_ms: int) -> bool:
        """Count a call, and say whether it is timed."""
        number, self.calls = self.calls, self.calls + 1
        if now_ms > self.counted_ms:
            self.warmth = self.warmth * MEMORY_MS // (MEMORY_MS + now_ms - self.counted_ms)
            self.counted_ms = now_ms
        self.warmth += UNIT
        if (age := now_ms - self.period_ms) >= HOLD_MS:
            self.before = self.most if age < 2 * HOLD_MS else 0
            self.most, self.period_ms = self.warmth, now_ms
        self.most = max(self.most, self.warmth)
        if number % BLOCK == 0 or now_ms >= self.shared[1] + SOON_MS:
            self.shared = self.process.share(now_ms), now_ms
        most = self.shared[0] + self.shared[0] // 2
        self.halvings = 0
        while self.need(now_ms) >> self.halvings > most:
            self.halvings += 1
        block = number // BLOCK
        if self.begun != block and not chosen(self.number, block, self.halvings):
            return False
        self.begun = block
        return True


def runs(timed: Iterable[bool]) -> list[tuple[int, int]]:
    """Return the first of each run of timed calls and its length."""
    found, every = list[tuple[int, int]](), list(timed)
    place = 0
    while place < len(every):
        length = sum(1 for _ in takewhile(bool, every[place:]))
        if length:
            found.append((place, length))
        place += length + 1
    return found
