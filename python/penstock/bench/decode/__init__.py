"""``penstock bench decode``: frames from a video file, or a pipe, into memory, by every library in turn.

``cases``    what can be measured: the jobs, and the methods
``inputs``   the files that are decoded, made by FFmpeg, and what must come out of them
``feeder``   the other process, which fills a pipe
``methods``  the methods, ours and the others', each an iterator of arrays
``worker``   one case in a process of its own: the clock, the accounts, the samples
``checks``   whether the frames are those of the file
``run``      the rounds, interleaved; medians, spread and the record
``goals``    what the project wants to reach, and whether a run did
``report``   tables for people
``command``  the command line

It needs NumPy; the others' libraries are compared with where they are installed.
"""
