"""Passwords: right, wrong, many at once. Real bcrypt, of the lowest cost where time does not matter."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import bcrypt
import pytest

from tests.patience import HANGS
from tests.rows import each
from wirewatch.server import passwords as module
from wirewatch.server.passwords import (
    BURST,
    JOINED,
    QUEUE,
    REFILL,
    PasswordResult,
    Passwords,
    Throttle,
    origin,
)


def hashed(password: bytes, cost: int = 4) -> bytes:
    return bcrypt.hashpw(password, bcrypt.gensalt(cost))


USERS = {"prometheus": hashed(b"secret"), "long": hashed(b"x" * 72)}


@each(
    ("user", "password", "word"),
    [
        ("prometheus", b"secret", PasswordResult.RIGHT),
        ("prometheus", b"Secret", PasswordResult.WRONG),
        ("prometheus", b"", PasswordResult.WRONG),
        ("prometheus", b"secret\x00", PasswordResult.WRONG),
        ("nobody", b"secret", PasswordResult.WRONG),
        ("", b"", PasswordResult.WRONG),
        ("long", b"x" * 72, PasswordResult.RIGHT),
        ("long", b"x" * 73, PasswordResult.WRONG),
        ("long", b"x" * 100_000, PasswordResult.WRONG),
    ],
)
def test_right_and_wrong(user: str, password: bytes, word: PasswordResult) -> None:
    passwords = Passwords()

    async def twice() -> list[PasswordResult]:
        return [await passwords.check(USERS, user, password, "here") for _ in range(2)]

    assert asyncio.run(twice()) == [word, word]


def test_hashes_of_other_tools_are_understood() -> None:
    for prefix in (b"$2a$", b"$2b$", b"$2y$"):
        users = {"a": prefix + USERS["prometheus"][4:]}
        assert asyncio.run(Passwords().check(users, "a", b"secret", "here")) is PasswordResult.RIGHT


def test_a_right_one_is_checked_once_and_is_not_known_any_more_when_its_hash_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users, looks, look = {"a": hashed(b"secret")}, [0], bcrypt.checkpw

    def counted(password: bytes, stored: bytes) -> bool:
        looks[0] += 1
        return look(password, stored)

    monkeypatch.setattr(bcrypt, "checkpw", counted)

    async def scenario() -> None:
        passwords = Passwords()
        for _ in range(200):
            assert await passwords.check(users, "a", b"secret", "here") is PasswordResult.RIGHT
        assert looks == [1]
        assert await passwords.check({"a": hashed(b"other")}, "a", b"secret", "here") is PasswordResult.WRONG
        assert (
            await passwords.check({"b": USERS["prometheus"]}, "a", b"secret", "here") is PasswordResult.WRONG
        )

    asyncio.run(scenario())


def test_an_address_that_guesses_waits_and_no_other_does() -> None:
    now = [0.0]

    async def scenario() -> None:
        passwords = Passwords(lambda: now[0])
        words = [await passwords.check(USERS, "prometheus", b"%d" % n, "guesser") for n in range(9)]
        assert words == [PasswordResult.WRONG] * int(BURST) + [PasswordResult.BUSY] * 4
        # Not even the right one, before the pause is over: else the guesser would see it.
        assert await passwords.check(USERS, "prometheus", b"secret", "guesser") is PasswordResult.BUSY
        assert await passwords.check(USERS, "prometheus", b"secret", "other") is PasswordResult.RIGHT
        # Whoever was right before is known without a look.
        assert await passwords.check(USERS, "prometheus", b"secret", "guesser") is PasswordResult.RIGHT
        now[0] += REFILL
        assert await passwords.check(USERS, "prometheus", b"guess", "guesser") is PasswordResult.WRONG

    asyncio.run(scenario())


def test_right_ones_cost_no_try() -> None:
    users = {str(n): USERS["prometheus"] for n in range(20)}

    async def scenario() -> list[PasswordResult]:
        passwords = Passwords(lambda: 0.0)
        return [await passwords.check(users, user, b"secret", "here") for user in users]

    assert asyncio.run(scenario()) == [PasswordResult.RIGHT] * 20


def test_a_flood_leaves_the_loop_alone_and_has_an_end() -> None:
    """A thousand guesses from as many addresses: few are looked at, and the loop turns all the while."""
    users = {"a": hashed(b"secret", 8)}

    async def scenario() -> tuple[list[PasswordResult], float]:
        passwords = Passwords()
        longest = 0.0

        async def turn() -> None:
            nonlocal longest
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - began)

        turning = asyncio.create_task(turn())
        guesses = (passwords.check(users, "a", b"%d" % n, str(n)) for n in range(1000))
        words = await asyncio.gather(*guesses)
        # While it lasts nobody gets in who is not known; afterwards everybody does.
        assert await passwords.check(users, "a", b"secret", "new") is PasswordResult.RIGHT
        turning.cancel()
        return words, longest

    words, longest = asyncio.run(scenario())
    assert words.count(PasswordResult.WRONG) == QUEUE + 1
    assert words.count(PasswordResult.BUSY) == 1000 - QUEUE - 1
    assert longest < 1.0


def test_an_address_that_was_right_gets_in_after_a_rotation_while_others_flood() -> None:
    async def scenario() -> PasswordResult:
        passwords = Passwords(lambda: 0.0)
        assert await passwords.check(USERS, "prometheus", b"secret", "scraper") is PasswordResult.RIGHT
        rotated = {"prometheus": hashed(b"other", 8)}
        flood = [
            asyncio.ensure_future(passwords.check(rotated, "prometheus", b"%d" % n, str(n)))
            for n in range(100)
        ]
        await asyncio.sleep(0)
        right = await passwords.check(rotated, "prometheus", b"other", "scraper")
        waiting = sum(not one.done() for one in flood)
        # It did not wait for those that had come before it, and one of them gave way.
        assert waiting == QUEUE - 1
        results = await asyncio.gather(*flood)
        assert results.count(PasswordResult.BUSY) == 100 - QUEUE
        return right

    assert asyncio.run(scenario()) is PasswordResult.RIGHT


def test_an_address_with_many_waiting_gives_way_to_one_with_none() -> None:
    users = {"a": hashed(b"secret", 8)}

    async def scenario() -> None:
        passwords = Passwords(lambda: 0.0)
        flood = [
            asyncio.ensure_future(passwords.check(users, "a", b"%d" % n, str(n // int(BURST))))
            for n in range(20)
        ]
        await asyncio.sleep(0)
        assert await passwords.check(users, "a", b"secret", "new") is PasswordResult.RIGHT
        await asyncio.gather(*flood)

    asyncio.run(scenario())


def test_the_end_of_the_process_waits_for_no_password() -> None:
    script = """
import asyncio, bcrypt, os
from wirewatch.server.passwords import Passwords
users = {"a": bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).replace(b"$04$", b"$31$")}
async def main():
    passwords = Passwords()
    checks = [asyncio.ensure_future(passwords.check(users, "a", b"%d" % n, str(n))) for n in range(9)]
    await asyncio.sleep(0.1)
asyncio.run(main())
"""
    # Each of the nine takes days.
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=HANGS).returncode == 0


def test_the_same_password_at_once_is_checked_once() -> None:
    async def scenario() -> list[PasswordResult]:
        passwords = Passwords(lambda: 0.0)
        return await asyncio.gather(
            *(passwords.check(USERS, "prometheus", b"secret", "a") for _ in range(1 + JOINED))
        )

    assert asyncio.run(scenario()) == [PasswordResult.RIGHT] * (1 + JOINED)


def test_the_same_wrong_password_from_many_holds_few_requests() -> None:
    async def scenario() -> tuple[list[PasswordResult], list[PasswordResult]]:
        passwords = Passwords(lambda: 0.0)
        assert await passwords.check(USERS, "prometheus", b"secret", "known") is PasswordResult.RIGHT
        changed = {"prometheus": hashed(b"other")}

        def asked(password: bytes, *addresses: str) -> list[asyncio.Task[PasswordResult]]:
            return [
                asyncio.create_task(passwords.check(changed, "prometheus", password, one))
                for one in addresses
            ]

        flood = asked(b"wrong", *(f"attacker {n % 3}" for n in range(100)))
        await asyncio.sleep(0)
        held = [one for one in flood if not one.done()]
        assert len(held) == 1 + JOINED
        after = asked(b"other", *["known"] * 16)
        return await asyncio.gather(*flood), await asyncio.gather(*after)

    flood, after = asyncio.run(scenario())
    assert flood.count(PasswordResult.BUSY) == 99 - JOINED
    assert flood.count(PasswordResult.WRONG) == 1 + JOINED
    assert after == [PasswordResult.RIGHT] * 16


def test_another_wave_of_the_same_password_is_held_as_the_first_was() -> None:
    async def scenario() -> list[list[PasswordResult]]:
        passwords, waves = Passwords(lambda: 0.0), []
        for password in (b"one", b"two"):
            asked = [passwords.check(USERS, "prometheus", password, str(n)) for n in range(1 + 24 + 1)]
            waves.append(await asyncio.gather(*asked))
        return waves

    assert asyncio.run(scenario()) == [[*[PasswordResult.WRONG] * 25, PasswordResult.BUSY]] * 2


def look_into(looks: list[bytes]) -> Callable[[bytes, bytes], bool]:
    """A bcrypt for which each password is right, and which notes them."""

    def look(password: bytes, _stored: bytes) -> bool:
        looks.append(password)
        return True

    return look


def test_right_passwords_are_remembered_and_those_that_were_used_last_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[bytes] = []
    monkeypatch.setattr(bcrypt, "checkpw", look_into(looks))
    users = {str(n): USERS["prometheus"] for n in range(129)}

    async def scenario() -> None:
        passwords = Passwords(lambda: 0.0)

        async def looked_at(*numbers: int) -> list[bytes]:
            looks.clear()
            for number in numbers:
                await passwords.check(users, str(number), b"%d" % number, "here")
            return [*looks]

        assert len(await looked_at(*range(128))) == 128
        assert await looked_at(*range(1, 128), 0) == []
        assert await looked_at(128, 0, 127) == [b"128"]
        assert await looked_at(1) == [b"1"]

    asyncio.run(scenario())


def test_addresses_that_were_right_are_remembered_and_the_last_of_them_are_kept() -> None:
    async def scenario() -> None:
        passwords = Passwords(lambda: 0.0)

        async def kept(*addresses: int) -> list[str]:
            for address in addresses:
                await passwords.check(USERS, "prometheus", b"secret", str(address))
            return [*passwords._trusted]  # noqa: SLF001

        assert len(await kept(*range(1024))) == 1024
        assert (await kept(0, 1024))[::1023] == ["2", "1024"]

    asyncio.run(scenario())


def test_the_tries_of_an_address_are_forgotten_after_those_of_many_others() -> None:
    throttle = Throttle(lambda: 0.0)
    first, second = ([throttle.take(name) for _ in range(6)] for name in ("first", "second"))
    assert first == second == [*[True] * 5, False]
    assert all(throttle.take(str(n)) for n in range(1022))
    assert not throttle.take("first")
    throttle.give_back("first")
    assert throttle.take("new")
    assert [throttle.take("first") for _ in range(2)] == [True, False]
    assert throttle.take("second")


def test_no_pause_gives_an_address_more_than_it_began_with() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    throttle.take("a")
    throttle.give_back("a")
    throttle.give_back("a")
    now[0] += 100.0
    assert [throttle.take("a") for _ in range(6)] == [*[True] * 5, False]
    now[0] += REFILL
    assert [throttle.take("a") for _ in range(2)] == [True, False]


def test_a_password_that_gave_way_costs_its_address_no_try() -> None:
    users = {"a": hashed(b"secret", 8)}

    async def scenario() -> list[PasswordResult]:
        passwords = Passwords(lambda: 0.0)
        flood = [
            asyncio.ensure_future(passwords.check(users, "a", b"%d" % n, "many" if n > 3 else str(n)))
            for n in range(9)
        ]
        await asyncio.sleep(0)
        await passwords.check(users, "a", b"secret", "new")
        gone = [await one for one in flood].count(PasswordResult.BUSY)
        assert gone == 1
        return [await passwords.check(users, "a", b"again %d" % n, "many") for n in range(2)]

    assert asyncio.run(scenario()) == [PasswordResult.WRONG, PasswordResult.BUSY]


def test_nobody_gives_way_to_an_address_that_has_as_many_or_where_all_were_right_before() -> None:
    users = {"a": hashed(b"secret", 8)}

    async def scenario() -> None:
        for trusted, newcomer in ((False, "1"), (True, "9")):
            passwords = Passwords(lambda: 0.0)
            for number in range(10 if trusted else 0):
                await passwords.check(USERS, "prometheus", b"secret", str(number))
            waiting = [
                asyncio.ensure_future(passwords.check(users, "a", b"%d" % n, str(n))) for n in range(9)
            ]
            await asyncio.sleep(0)
            more = asyncio.ensure_future(passwords.check(users, "a", b"more", newcomer))
            await asyncio.sleep(0)
            assert more.done()
            assert more.result() is PasswordResult.BUSY
            assert {await one for one in waiting} == {PasswordResult.WRONG}

    asyncio.run(scenario())


@pytest.mark.parametrize(("password", "read", "right"), [(b"x" * 72, 72, True), (b"x" * 100_000, 72, False)])
def test_a_wrong_password_takes_twice_as_long_and_a_long_one_no_longer(
    monkeypatch: pytest.MonkeyPatch, *, password: bytes, read: int, right: bool
) -> None:
    looks: list[bytes] = []
    slept: list[float] = []
    ticks = iter((10.0, 12.5))
    monkeypatch.setattr(bcrypt, "checkpw", look_into(looks))
    monkeypatch.setattr(
        module,
        "time",
        SimpleNamespace(monotonic=lambda: next(ticks), sleep=slept.append),
    )
    assert vars(module)["_compare"](password, USERS["long"]) is right
    assert ([len(one) for one in looks], slept) == ([read], [] if right else [2.5])


@pytest.mark.parametrize(
    ("host", "unit"),
    [
        ("10.0.0.7", "10.0.0.7"), ("user 7", "user 7"), ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:0:1:2::5", "2001:db8:0:1::/64"),
    ],
)  # fmt: skip
def test_who_is_throttled_together(host: str, unit: str) -> None:
    assert origin(host) == unit
