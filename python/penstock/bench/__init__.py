"""The benchmarks behind ``penstock bench``: each has a package of its own.

``decode``   frames from a video file, or a pipe, into memory, by every library
``encode``   frames from memory into a video file, by every library
``pipe``     frames from memory into FFmpeg
``pipeline`` compressed assets through native threads, under load
``relay``    bytes from descriptor to descriptor, and from one to many

They share:

``machine``  what it was measured on
``record``   how every record begins, and where it is kept
``accounts`` what a run took: CPU time and memory
``goals``    whether a run reached what the project wants to reach
``isolated`` a case in a process of its own
``rounds``   the interleaved rounds of a group of cases
``spread``   how far apart the rounds lie
``rivals``   whether the others' libraries are here
``frames``   the pictures: noise, and a moving texture
``parsing``  names, numbers and lists as people type them
``options``  how the commands read their options and say how it went
``command``  the group of the commands

They need the extra ``penstock-io[cli]``.
"""
