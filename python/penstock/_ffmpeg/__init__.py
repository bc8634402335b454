"""The FFmpeg program, and the words of its command line.

``program`` finds it, starts it and watches it; ``command`` writes its arguments for encoding and decoding. Nothing here
decides what an encode or a decode does. It imports `_streams` and `_common`; `_facts`, `_decoding` and `_encoding` call
it.
"""
