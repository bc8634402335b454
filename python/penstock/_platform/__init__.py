"""What the operating system is asked for that Python has no word for on all of them: forks, descriptors, processes.

It imports nothing of the package. The check of imports refuses such words in other rooms.
"""
