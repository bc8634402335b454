"""``penstock bench relay``: bytes from descriptor to descriptor, and from one to many, by every method in turn.

``cases``    what can be measured: the ways that bytes go, and their sizes
``ends``     the two ends of a way: files, and pipes and sockets with the threads that feed and drain them
``methods``  the methods, ours and the others', behind one interface
``run``      the clock, the accounts, the check of the content; the rounds, interleaved, and the record
``goals``    what the project wants to reach, and whether a run did
``report``   tables for people
``command``  the command line
"""
