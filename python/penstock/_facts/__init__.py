"""What is in a file: its streams, times, packets and ends, read by libav (PyAV).

``probing`` makes the types of ``info``, in this process or, by ``isolation``, in a confined one: of the streams' first
packets (``beginnings``), and of the rate of their times (``frame_rate``). ``source`` and ``opening`` open a file,
``index`` and ``seeking`` map frames to packets and times. ``completeness`` tells whether all of it came, by packets and
by ``container_bytes``. It imports `_ffmpeg`, `_streams` and `_common`; decoding, encoding and rendering call it.
"""
