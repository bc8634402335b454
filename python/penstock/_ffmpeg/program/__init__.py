"""The FFmpeg program: ``capabilities`` finds it, and tells what it can do.

``child`` starts a program, reads its pipes and reaps it. ``process`` is an FFmpeg at work: its start, its signs of life
and its end at exit and in a fork. ``messages`` sorts what it says.
"""
