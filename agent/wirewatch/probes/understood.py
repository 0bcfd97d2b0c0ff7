"""Probes as the history keeps them: JSON, checked before anybody reckons with it."""

import logging

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.probing.result import Probed
from wirewatch.core.probing.sound import unsound
from wirewatch.probes.records import Record

log = logging.getLogger(__name__)

PROBED = TypeAdapter(Probed)


def understood(record: Record) -> Probed | None:
    """The probe of a record; None, and a line in the log, where it cannot be one of ours."""
    try:
        probed = PROBED.validate_json(record.document)
    except ValidationError as error:
        log.warning("a probe of before is not understood: %s", error.errors()[0]["msg"])
        return None
    if wrong := unsound(probed):
        log.warning("a probe of before does not fit together: %s", wrong)
        return None
    return probed
