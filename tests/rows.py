"""Many rows of one rule in one test: a test for each takes longer than a row of less than a millisecond."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

Test = Callable[..., None]
Ids = Callable[[Any], object] | Sequence[str] | None


def each(names: str | Sequence[str], rows: Iterable[Any], ids: Ids = None) -> Callable[[Test], Test]:
    """Run a test for all rows, as `pytest.mark.parametrize` has them; the failure has every wrong row."""
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    kept = list(rows)
    assert kept, "there are no rows"
    assert not any(isinstance(row, type(pytest.param())) for row in kept), "pytest.param is of parametrize"
    alone = isinstance(names, str) and len(wanted) == 1

    def decorated(test: Test) -> Test:
        def whole(**given: Any) -> None:
            wrong = list(_wrong([[row] if alone else list(row) for row in kept], given))
            assert not wrong, "\n\n".join((f"{len(wrong)} of {len(kept)} rows are wrong", *wrong))

        def _wrong(cases: Sequence[Sequence[Any]], given: dict[str, Any]) -> Iterator[str]:
            for number, values in enumerate(cases):
                try:
                    test(**dict(zip(wanted, values, strict=True)), **given)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - said for each row
                    name = ids[number] if isinstance(ids, Sequence) else repr(values)[:200]
                    yield f"{name}: {type(error).__name__}: {error}"

        made = inspect.signature(test)
        left = [one for name, one in made.parameters.items() if name not in wanted]
        assert len(left) + len(wanted) == len(made.parameters), f"{test.__name__} does not take {wanted}"
        vars(whole)["__signature__"] = made.replace(parameters=left)
        whole.__name__, whole.__doc__, whole.__module__ = test.__name__, test.__doc__, test.__module__
        return whole

    return decorated
