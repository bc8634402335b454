"""``penstock bench pipe``: frames from memory into FFmpeg, by every method in turn.

``cases``    what can be measured: sizes, encodes, methods, and the groups they make
``methods``  the methods, ours and the others', behind one interface
``worker``   one case in a process of its own: the clock, the accounts, the check of the content
``run``      the rounds, interleaved; medians, spread and the record
``goals``    what the project wants to reach, and whether a run did
``report``   tables for people
``command``  the command line

It needs NumPy; TurboPipe is compared with where it is installed.
"""
