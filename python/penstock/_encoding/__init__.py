"""Writing: frames and sound into a file or a stream, by an FFmpeg program that ``session`` runs.

``encoder`` has the public class. ``request`` has its arguments as one value. ``plan`` checks them, and decides who
converts pixels, and FFmpeg's arguments; ``container`` says which times a container holds. ``feed`` puts times before
frames and sound, and ``compare`` compares the file with what was meant. ``like`` takes the arguments from another
video. It imports `_decoding` and below; fan-outs, rendering and the CLI call it.
"""
