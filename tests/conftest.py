"""Hypothesis asserts no speed here: its deadline is off."""

from hypothesis import settings

from tests.examples import examples

settings.register_profile("wirewatch", deadline=None, max_examples=examples(100))
settings.load_profile("wirewatch")
