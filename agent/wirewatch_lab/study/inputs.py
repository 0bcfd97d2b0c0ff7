"""What was measured elsewhere, read in one pass and in bounded memory, however long its lines are."""

from collections.abc import Iterator
from typing import BinaryIO

from wirewatch_lab.study.nccljson import Assembler, begins, read_document
from wirewatch_lab.study.nccltests import Reader

LINE = 1 << 16
"""Bytes that are read at once, and kept of a line; those of nccl-tests and NCCL have some hundred."""
_CUT = "its JSON document stops in the middle"


def mixed_lines(file: BinaryIO, reader: Reader) -> Iterator[str]:
    """The lines of a text, each without its end, after the reader has read it.

    Tables of nccl-tests, its JSON documents and NCCL's log may stand in it, in any order. The documents are
    read and not among the lines. At the end the reader is finished.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds more than can be kept.
    """
    document: Assembler | None = None
    starts = True
    for piece in _pieces(file):
        begun, starts = starts, piece.endswith("\n")
        if document is None and not begun:
            continue
        if document is None and begins(piece):
            document = Assembler()
        if document is None:
            yield _read(piece, reader, whole=starts or len(piece) < LINE)
            continue
        rest = document.take(piece)
        while rest is not None and not document.foreign:
            _add(document, reader)
            document, again = Assembler(), begins(rest)
            if not again:
                break
            rest = document.take(rest)
        if document.foreign:
            rest = document.text
        if rest is not None:
            document = None
            yield from _lines(rest, reader)
    if document is not None and document.text:
        yield from _lines(_unfinished(document, reader), reader)
    reader.finish()


def _pieces(file: BinaryIO) -> Iterator[str]:
    """The text in parts that end with a line or have `LINE` bytes."""
    first = True
    while part := file.readline(LINE):
        text = part.decode("utf-8", "replace")
        yield text.removeprefix("\ufeff") if first else text
        first = False


def _read(text: str, reader: Reader, *, whole: bool = True) -> str:
    line = text.rstrip("\r\n")
    reader.feed(line, whole=whole)
    return line


def _lines(text: str, reader: Reader) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip():
            yield _read(line[:LINE], reader, whole=len(line) <= LINE)


def _add(document: Assembler, reader: Reader) -> None:
    """Take a whole document."""
    lines = document.text.count("\n") + 1
    run = read_document(document.text, reader.lines + 1)
    if run is None:
        reader.pass_over(lines)
    else:
        reader.lines += lines
        reader.add(run)


def _unfinished(document: Assembler, reader: Reader) -> str:
    """A document that the text ends in: a run that is not complete; else all of it."""
    run = read_document(document.cut(), reader.lines + 1, cut=True)
    if run is None:
        return document.text
    run.failures.append(_CUT)
    reader.lines += document.text.count("\n") + 1
    reader.add(run)
    return ""
