"""Hypothesis asserts no speed here: its deadline is off."""

from hypothesis import settings

settings.register_profile("wirewatch", deadline=None)
settings.load_profile("wirewatch")
