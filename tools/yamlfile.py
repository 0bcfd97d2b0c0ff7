"""YAML read by PyYAML's parser in C, in a tenth of the time."""

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    """The document of a text.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 # nosemgrep: yaml-is-safe - as safe_load, in C


def load_all_yaml(text: str) -> list[Any]:
    """All documents of a text; empty ones are None.

    Raises:
        yaml.YAMLError: it holds something else.
    """
    return list(yaml.load_all(text, Loader=_LOADER))  # nosemgrep: yaml-is-safe - as above
