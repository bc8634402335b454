"""The FFmpeg program: ``find`` finds it, and ``capabilities`` tells what it can do.

``child`` starts and reaps a program, ``runner`` runs one to its end, ``process`` is an FFmpeg at work, and ``messages``
sorts what it says. ``session`` is one run of it: its start, its signs of life, its end at exit and in a fork.
"""
