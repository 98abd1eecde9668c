"""What Linux offers to every user against foreign code: namespaces, and Landlock's rules about files and connections.

This module imports the standard library alone: a process in which foreign code runs can be given its file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence

CLONE = {"mounts": 0x00020000, "ipc": 0x08000000, "user": 0x10000000, "processes": 0x20000000, "network": 0x40000000}
"""What a process can have to itself."""
READ, WRITE = 0b1101, 0b111111111111111
"""Landlock's rights: execute, read a file, list a folder; and everything up to truncate."""


SIGNALS = 6
"""The version of Landlock that can keep signals and connections to abstract sockets within the restricted processes."""


def restrict(libc: ctypes.CDLL, readable: Sequence[str], writable: Sequence[str]) -> int:
    """Let this process read these folders and write into those, and nothing else.

    Where it can, it also forbids connections over TCP, and signals to other processes.

    Returns:
        The version of Landlock; 0 if the system has none.
    """
    create, add, restrict = 444, 445, 446
    version = libc.syscall(create, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return 0
    files = WRITE & ((1 << (13 if version == 1 else 14 if version == 2 else 15)) - 1)
    rules = (ctypes.c_uint64 * 3)(files, 3, 3)
    made = libc.syscall(create, rules, ctypes.c_size_t(24 if version >= SIGNALS else 16 if version >= 4 else 8), 0)
    if made < 0:
        return 0
    for paths, rights in ((readable, READ), (writable, files), (["/dev/null", "/dev/zero"], 0b110)):
        for path in paths:
            with contextlib.suppress(OSError):
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                allowed = rights if os.path.isdir(path) else rights & 0b100000000000111
                rule = struct.pack("<Qi", allowed & files, place)
                libc.syscall(add, made, 1, rule, 0)
                os.close(place)
    answer = libc.syscall(restrict, made, 0)
    os.close(made)
    return int(version) if answer == 0 else 0


def same_user(uid: int, gid: int) -> None:
    """Keep the numbers of user and group within a new namespace of users."""
    with contextlib.suppress(OSError):
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def enter(writable: Sequence[str]) -> bool:
    """Cut this process off from the network, and let it write into these folders alone; False if that is impossible.

    It can still read what its user can read. It must have one thread. What it has opened before stays open.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, which Landlock asks for
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(CLONE["user"] | CLONE["network"]) != 0:
        return False
    same_user(uid, gid)
    return restrict(libc, ["/"], [path for path in writable if os.path.isdir(path)]) > 0
