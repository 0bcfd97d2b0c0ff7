"""Hypothesis asserts no speed here: its deadline is off."""

import gc

from hypothesis import settings

from tests.examples import examples

settings.register_profile("wirewatch", deadline=None, max_examples=examples(100))
settings.load_profile("wirewatch")


def pytest_collection_finish() -> None:
    """What is here by now lives to the end; to look for garbage in it takes a twentieth of all the time."""
    gc.collect()
    gc.freeze()
