"""Writing: frames and sound into a file or a stream, by an FFmpeg program that ``session`` runs to its end.

``encoder`` has the public class. ``request`` has its arguments as one value. ``plan`` checks them, and makes FFmpeg's
arguments; ``pixel_plan`` decides who converts pixels, and ``container`` says which times a container holds. ``intake``
takes frames and samples, which other parts of the package may use, too; ``feed`` puts times before them. ``judging``
says what the result lacks, and ``compare`` compares the file with what was meant. ``like`` takes the arguments from
another video. It imports `_decoding` and below; fan-outs, rendering and the CLI call it.
"""
