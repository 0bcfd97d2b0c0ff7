"""Tables of the advice: TOML files beside the modules that read them."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def rows(package: str, name: str) -> Mapping[str, Any]:
    """Return the rows of a package's file by name, in their order."""
    return tomllib.loads(files(package).joinpath(name).read_text("utf-8"))
