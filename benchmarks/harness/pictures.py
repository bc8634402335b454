"""The frames of transports: noise; and smooth waves for content checks. They are the same in every run."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]

Content = Literal["noise", "smooth"]

#: As many as in TurboPipe's own comparison.
NOISE_BUFFERS = 4
#: After so many frames the waves are back where they began.
LOOP_FRAMES = 30
#: They move in a circle, so that their loop has no cut: 8 pixels from frame to frame.
RADIUS_PIXELS = 40
#: The waves: pixels from crest to crest, across and down, and the height in code values.
WAVES = ((311.0, 173.0, 45.0), (97.0, -61.0, 25.0))
SEED = 1


class Pictures:
    """Frames of ``height × width × 3`` bytes, rgb24."""

    def __init__(self, content: Content, width: int, height: int) -> None:
        self.content = content
        self.width, self.height = width, height
        self.generator = np.random.default_rng(SEED)

    def all(self) -> list[Frame]:
        """Every frame, each in its own buffer."""
        if self.content == "noise":
            return [self.noise() for _ in range(NOISE_BUFFERS)]
        return [self.waves(number) for number in range(LOOP_FRAMES)]

    def noise(self) -> Frame:
        """The next frame of noise from 128 to 135, which is TurboPipe's own data."""
        return self.generator.integers(128, 136, (self.height, self.width, 3), dtype=np.uint8)

    def waves(self, number: int) -> Frame:
        """Frame ``number`` of the moving waves."""
        angle = 2 * math.pi * number / LOOP_FRAMES
        top = RADIUS_PIXELS + round(RADIUS_PIXELS * math.sin(angle))
        left = RADIUS_PIXELS + round(RADIUS_PIXELS * math.cos(angle))
        return np.ascontiguousarray(self._plain[top : top + self.height, left : left + self.width])

    @cached_property
    def _plain(self) -> Frame:
        """The plane that the frames are windows of: waves, different in each channel."""
        height, width = self.height + 2 * RADIUS_PIXELS, self.width + 2 * RADIUS_PIXELS
        down = np.arange(height, dtype=np.float32)[:, np.newaxis]
        across = np.arange(width, dtype=np.float32)[np.newaxis, :]
        channels = np.empty((height, width, 3), np.uint8)
        for channel in range(3):
            light = np.full((height, width), 128, np.float32)
            for wave, (pixels_across, pixels_down, high) in enumerate(WAVES):
                phase = across / pixels_across + down / pixels_down + channel * (wave + 1) / 3
                light += high * np.sin(2 * np.pi * phase)
            channels[..., channel] = light
        return channels


def apart(shown: Frame, expected: Frame) -> Frame:
    """The absolute difference of each value. A plain difference would wrap around in uint8."""
    return np.maximum(shown, expected) - np.minimum(shown, expected)
