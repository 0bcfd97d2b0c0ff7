"""What a worker's document and its end amount to."""

import signal
from contextlib import suppress

from pydantic import TypeAdapter, ValidationError

from wirewatch.core.probe import Document, Outcome, Plan, strange
from wirewatch.probes.launch import Worker

DOCUMENT = TypeAdapter(Document)


def understand(
    worker: Worker, status: int | None, outcome: Outcome, why: str, plan: Plan
) -> tuple[Document | None, Outcome, str]:
    """The document, and the outcome that it and the end of the worker amount to."""
    if outcome == "timeout":
        return None, outcome, _with_words(why, worker)
    if outcome not in {"ok", "stuck"}:
        return None, outcome, why
    document = _document(worker, status, plan)
    if outcome == "stuck":
        return (document if isinstance(document, Document) else None), outcome, why
    if not isinstance(document, Document):
        return None, *document
    if document.error is None:
        return document, outcome, why
    kinds: dict[str, Outcome] = {"no_engine": "no_engine", "out_of_memory": "out_of_memory"}
    return document, kinds.get(document.error.kind, "failed"), document.error.text


def _document(worker: Worker, status: int | None, plan: Plan) -> Document | tuple[Outcome, str]:
    """What the worker told, or why it told nothing that can be used."""
    if worker.nonsense:
        return "garbage", _with_words(f"not what a worker writes: {worker.nonsense}", worker)
    if not worker.document:
        return "failed", _with_words(f"the worker {_end(worker, status)} and told nothing", worker)
    try:
        document = DOCUMENT.validate_json(worker.document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = f"{'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
        return "garbage", _with_words(f"not a document of the worker: {where}{first['msg']}", worker)
    told = strange(document, plan)
    return ("garbage", f"not a document of this plan: {told}") if told else document


def _end(worker: Worker, status: int | None) -> str:
    if worker.hung or status is None:
        return "hung at its end"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return f"was ended by signal {-status}"


def _with_words(why: str, worker: Worker) -> str:
    said = worker.last_words()
    return f"{why}: {said}" if said else why
