"""What the render benchmark draws. Each scene draws any frame from its index alone."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.harness.content import Frame

#: Steps of a loop of plain Python for a frame: some 30 ms on a 2.5 GHz x86-64.
STEPS = 300_000
#: Of the moving picture: how far it pans, in pixels; the size of the pattern that its grain is cut from; code values
#: of the grain; and how fast fine detail becomes weak. Guessed, like film: at 720p by x264 medium, a keyframe is some
#: 13 times as large as the mean of the other frames (measured).
PAN_PIXELS, GRAIN_PIXELS, GRAIN, ROUGHNESS = 120, 64, 16, 1.2


def working(index: int, time_s: float, view: Frame) -> None:
    """A loop that holds the interpreter's lock, and a bar whose place tells the index."""
    total = index
    for step in range(STEPS):
        total = (total * 31 + step) & 0xFFFFFFFF
    view[:] = total % 256
    view[:, index % view.shape[1]] = 255


class Moving:
    """A window that pans over a rough surface, with grain that is new in each frame."""

    def __init__(self) -> None:
        self._surface = self._grain = np.empty((0, 0, 3), np.uint8)

    def __call__(self, index: int, time_s: float, view: Frame) -> None:
        height, width, _ = view.shape
        if not self._surface.size:
            self._make(height, width)
        top = round(PAN_PIXELS * (1 + math.sin(0.7 * time_s)))
        left = round(PAN_PIXELS * (1 + math.cos(0.9 * time_s)))
        down, across = index * 37 % GRAIN_PIXELS, index * 53 % GRAIN_PIXELS
        surface = self._surface[top : top + height, left : left + width]
        np.add(surface, self._grain[down : down + height, across : across + width], out=view)

    def _make(self, height: int, width: int) -> None:
        generator = np.random.default_rng(1)
        size = height + 2 * PAN_PIXELS, width + 2 * PAN_PIXELS
        frequency = np.hypot(np.fft.fftfreq(size[0])[:, np.newaxis], np.fft.rfftfreq(size[1])[np.newaxis])
        frequency[0, 0] = 1.0
        spectra = (np.fft.rfft2(generator.standard_normal(size)) for _ in range(4))
        shared, *own = (np.fft.irfft2(spectrum / frequency**ROUGHNESS, size) for spectrum in spectra)
        channels = np.stack([0.8 * shared + 0.2 * channel for channel in own], axis=-1)
        lit = 128 + 45 * channels / channels.std()
        self._surface = np.clip(lit, 8, 255 - GRAIN).astype(np.uint8)
        pattern = height + GRAIN_PIXELS, width + GRAIN_PIXELS, 1
        self._grain = generator.integers(0, GRAIN, pattern, np.uint8).repeat(3, axis=-1)
