"""``penstock bench encode``: frames from memory into a video file, by every library in turn.

``cases``    what can be measured: the jobs, and the methods
``methods``  the methods, ours and the others', behind one interface
``worker``   one case in a process of its own: the clock, the accounts, the pace
``checks``   whether a file has the frames that were sent
``run``      the rounds, interleaved; medians, spread and the record
``goals``    what the project wants to reach, and whether a run did
``report``   tables for people
``command``  the command line

It needs NumPy; the others' libraries are compared with where they are installed.
"""
