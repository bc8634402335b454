"""The logger ``penstock``.

It carries fallbacks and the encoder that ``codec="auto-h264"`` chose (INFO), stalls of relays, encoders and decoders
and evictions by a tee (WARNING), and what the end of the program lost (ERROR). Native threads do not log: the facts are
read when a call returns or a stream closes. Exceptions are logged as text: handlers may keep what is logged, and an
exception keeps its frames and what they hold.
"""

from __future__ import annotations

import logging

from penstock._common.messages import silent

logger = logging.getLogger("penstock")
logger.addFilter(lambda _: not silent.get())
logger.addHandler(logging.NullHandler())
