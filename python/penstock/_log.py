"""What is told beside results and errors: the logger ``penstock``, and warnings.

The logger carries fallbacks and the encoder that ``codec="auto-h264"`` chose (INFO), stalls of relays, encoders and
decoders and evictions by a tee (WARNING), and what the end of the program lost (ERROR). Native threads do not log: the
facts are read when a call returns or a stream closes.
Exceptions are logged as text: handlers may keep what is logged, and an exception keeps its frames and what they hold.
"""

from __future__ import annotations

import logging
import sys
import warnings

from penstock.errors import FFmpegWarning

logger = logging.getLogger("penstock")
logger.addHandler(logging.NullHandler())
# What the names of our own files begin with.
_OURS = __file__.removesuffix("_log.py")


def warn(message: str) -> None:
    """Warns with an `FFmpegWarning` at the line that called this package on this thread, however deep in it this is."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, FFmpegWarning, stacklevel=level)
