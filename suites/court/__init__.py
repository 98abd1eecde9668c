"""A court for strangers: candidates run behind a wall, and everything that decides a verdict is on this side of it.

Begin with `court`. `inside` is the program behind the wall; it and `message`, the bytes that cross it, import nothing
of gradgate, because gradgate's files are not visible there.
"""
