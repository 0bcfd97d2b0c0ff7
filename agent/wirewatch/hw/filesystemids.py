"""The ids by which the kernel judges what a thread may do with files: setfsuid(2) and setfsgid(2).

They are of one thread and of files alone: no other thread works with them, and the user may not send the
process a signal, as they could after seteuid(2). With a user other than root a thread of root's also loses
the capabilities that override permissions, until it is root's again.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

_SAME = 0xFFFFFFFF
"""No id: nothing changes, and the call returns the one in force."""


@contextmanager
def filesystem_ids(uid: int, gid: int) -> Iterator[None]:
    """This thread's access to files is that of a user and group without other groups, until the block ends.

    No thread and no process may be started in the block: it would keep the ids. The first time, the whole
    process gives up its supplementary groups for good.

    Raises:
        PermissionError: the process may not act as that user; the block is not run.
    """
    set_uid, set_gid = _calls()
    if os.getgroups():
        os.setgroups([])
    before = set_uid(_SAME), set_gid(_SAME)
    try:
        set_gid(gid)
        set_uid(uid)
        if (set_uid(_SAME), set_gid(_SAME)) != (uid, gid):
            raise PermissionError
        yield
    finally:
        set_uid(before[0])
        set_gid(before[1])


@cache
def _calls() -> tuple[Callable[[int], int], Callable[[int], int]]:
    library = ctypes.CDLL(None)
    for call in (library.setfsuid, library.setfsgid):
        call.argtypes, call.restype = [ctypes.c_uint], ctypes.c_uint
    return library.setfsuid, library.setfsgid
