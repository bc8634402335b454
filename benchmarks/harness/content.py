"""The frames: moving pictures as people render, film and show them, and noise. The same in every run.

Noise alone is for transports: an encoder may quantize it to nothing, or to all of its file, by the smallest difference
in the conversion of its colors (see README.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Frame = NDArray[np.uint8]

#: ``motion`` is a rendered animation: lit balls and bars in front of a moving gradient. ``camera`` is the same with a
#: sensor's noise. ``text`` is an editor that scrolls: colored words of a bitmap font, with sharp edges. ``noise`` is
#: from 128 to 135, which is TurboPipe's own data. ``waves`` are smooth and move, for content checks.
Content = Literal["motion", "camera", "text", "noise", "waves"]
SEED = 1

#: Shown there and back, they are a loop of 30 frames without a cut.
LOOP_PICTURES = 16

#: Of ``motion``: shapes, and the share of the picture's height that each is wide.
SHAPES, SHAPE_PART = 14, 0.22
#: How far they move in a frame at most, as the same share.
SHAPE_STEP_PART = 0.015
#: The deviation of a sensor's noise, in code values. Guessed: a phone's camera in a lit room.
SENSOR_DEVIATION = 3.0
#: The noise of a frame is a window of a plane that is larger by so many pixels.
SENSOR_MARGIN = 64

#: A common 5 × 7 font, a to z: five columns each, the lowest bit at the top.
FONT = bytes.fromhex(
    "2054545478 7f48444438 3844444420 384444487f 3854545418 087e090102 0c5252523e 7f08040478 00447d4000 2040443d00"
    "7f10284400 00417f4000 7c04180478 7c08040478 3844444438 7c14141408 081414187c 7c08040408 4854545420 043f444020"
    "3c4040207c 1c2040201c 3c4030403c 4428102844 0c5050503c 4464544c44"
)
#: Letters as in English words: a space ends a word. A cell has the letter and a gap, each pixel doubled.
LETTERS = "eeeeettttaaaooiinnsshhrrddllcuumwfgypbvkxjqz" + " " * 9
CELL_WIDTH, CELL_HEIGHT = 12, 20
#: How many pixels the text scrolls in a frame.
SCROLL_PIXELS = 3
TEXT_BACKGROUND = (30, 32, 38)
#: Of the words in turn. Most are gray.
TEXT_COLORS = (*4 * [(212, 212, 212)], (197, 134, 192), (156, 220, 254), (106, 153, 85))

#: Of the waves: pixels from crest to crest, across and down, and the height in code values.
WAVES = ((311.0, 173.0, 45.0), (97.0, -61.0, 25.0))
#: They move in a circle, so that their loop of so many frames has no cut: 8 pixels from frame to frame.
WAVES_LOOP_FRAMES, WAVES_RADIUS_PIXELS = 30, 40

#: Of red, green and blue.
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


class Film:
    """Frames of ``height × width × 3`` bytes, rgb24, by their number."""

    def __init__(self, content: Content, width: int, height: int) -> None:
        self.content = content
        self.width, self.height = width, height

    def pictures(self) -> Frame:
        """The first pictures, for a loop."""
        return np.array([self.frame(number) for number in range(LOOP_PICTURES)])

    def frame(self, number: int) -> Frame:
        """A frame in its own memory. Those of ``text`` and ``waves`` repeat."""
        match self.content:
            case "noise":
                shape = self.height, self.width, 3
                return np.random.default_rng((SEED, number)).integers(128, 136, shape, np.uint8)
            case "waves":
                angle, radius = 2 * math.pi * number / WAVES_LOOP_FRAMES, WAVES_RADIUS_PIXELS
                top, left = (radius + round(radius * turn(angle)) for turn in (math.sin, math.cos))
                return self._waves[top : top + self.height, left : left + self.width].copy()
            case "text":
                top = SCROLL_PIXELS * number % self.height
                return self._page[top : top + self.height, : self.width].copy()
            case "camera":
                top, left = np.random.default_rng((SEED, number)).integers(0, SENSOR_MARGIN, 2)
                noise = self._sensor[top : top + self.height, left : left + self.width]
                return (noise + self._motion(number)).clip(0, 255).astype(np.uint8)
        return self._motion(number)

    def _motion(self, number: int) -> Frame:
        plane = np.roll(self._palette, -6 * number, axis=0)[self._gradient]
        generator = np.random.default_rng(SEED)
        places, steps = generator.random((SHAPES, 2)), generator.uniform(-1, 1, (SHAPES, 2))
        tints = generator.uniform(40, 255, (SHAPES, 3)).astype(np.float32)
        # Back and forth between the edges: a triangle wave from 0 to 1.
        places = np.abs((places + SHAPE_STEP_PART * number * steps) % 2 - 1)
        for shape, (top, left) in enumerate((places * (self.height, self.width)).astype(int)):
            light = (self._ball if shape % 2 else self._bar)[..., np.newaxis]
            window = plane[top : top + light.shape[0], left : left + light.shape[1]]
            np.copyto(window, light * tints[shape], where=light > 0, casting="unsafe")
        edge = self._shape_pixels // 2
        return np.ascontiguousarray(plane[edge : edge + self.height, edge : edge + self.width])

    @cached_property
    def _waves(self) -> Frame:
        """The plane that the frames of ``waves`` are windows of. It is different in each channel."""
        margin = 2 * WAVES_RADIUS_PIXELS
        down, across = np.ogrid[: self.height + margin, : self.width + margin]
        waves = [
            [
                high * np.sin(2 * np.pi * (across / pixels_across + down / pixels_down + channel * wave / 3))
                for wave, (pixels_across, pixels_down, high) in enumerate(WAVES, 1)
            ]
            for channel in range(3)
        ]
        return np.stack([128 + sum(each) for each in waves], axis=-1).astype(np.uint8)

    @property
    def _shape_pixels(self) -> int:
        """How wide and high a shape is."""
        return max(2, int(SHAPE_PART * self.height))

    @cached_property
    def _gradient(self) -> NDArray[np.intp]:
        """Of the frame and half a shape on each side: indices of colors."""
        down, across = np.ogrid[: self.height + self._shape_pixels, : self.width + self._shape_pixels]
        waves = np.sin(across / self.height * 2) + np.cos(down / self.height * 3)
        return (300 * waves + 200 * across / self.width).astype(np.intp) % len(self._palette)

    @cached_property
    def _palette(self) -> Frame:
        """Colors that come back where they began."""
        turn = 2 * np.pi * np.arange(1024)[:, np.newaxis] / 1024
        colors: Frame = (96 + 64 * np.sin(turn + np.array([0, 2, 4]))).astype(np.uint8)
        return colors

    @cached_property
    def _ball(self) -> NDArray[np.float32]:
        """Lit from above and the left. Beside it the light is 0."""
        side = np.linspace(-1, 1, self._shape_pixels, dtype=np.float32)
        down, across = side[:, np.newaxis], side[np.newaxis, :]
        depth = 1 - down**2 - across**2
        lit = 0.35 + 0.48 * (np.sqrt(depth.clip(0)) - 0.5 * down - 0.5 * across)
        return np.where(depth > 0, lit.clip(0.05, 1), 0)

    @cached_property
    def _bar(self) -> NDArray[np.float32]:
        """Stripes at an angle, for edges of all kinds."""
        down, across = np.ogrid[: self._shape_pixels, : self._shape_pixels // 3 + 1]
        return np.where((down + 2 * across) * 30 // self.height % 2, np.float32(0.95), np.float32(0.4))

    @cached_property
    def _sensor(self) -> NDArray[np.int16]:
        """Of luma, because cameras take most of chroma's noise away, and smooth from pixel to pixel."""
        shape = self.height + SENSOR_MARGIN + 1, self.width + SENSOR_MARGIN + 1, 1
        rough = np.random.default_rng(SEED).standard_normal(shape, dtype=np.float32)
        # The sum of four values has twice the deviation of one.
        smooth = (rough[:-1, :-1] + rough[1:, :-1] + rough[:-1, 1:] + rough[1:, 1:]) / 2
        return np.rint(SENSOR_DEVIATION * smooth).astype(np.int16)

    @cached_property
    def _page(self) -> Frame:
        """Two screens of text."""
        lines, columns = 2 * self.height // CELL_HEIGHT + 1, self.width // CELL_WIDTH + 1
        generator, at = np.random.default_rng(SEED), np.arange(columns)
        letters = generator.choice(list(LETTERS.encode()), (lines, columns))
        # Lines are indented, and end before the edge.
        letters[at < generator.integers(0, columns // 6 + 1, (lines, 1))] = ord(" ")
        letters[at > generator.integers(columns // 3, columns, (lines, 1))] = ord(" ")
        words = np.cumsum(letters == ord(" "), axis=1) + np.arange(lines)[:, np.newaxis]
        colors = np.array(TEXT_COLORS, np.uint8)[words % len(TEXT_COLORS)]
        # The cell of each ASCII character. All but a to z are empty.
        glyphs = np.zeros((128, CELL_HEIGHT // 2, CELL_WIDTH // 2), bool)
        font = np.frombuffer(FONT, np.uint8).reshape(26, 1, 5)
        glyphs[ord("a") : ord("z") + 1, 1:9, :5] = font >> np.arange(8)[:, np.newaxis] & 1
        glyphs = glyphs.repeat(2, axis=1).repeat(2, axis=2)
        # Lines × columns × the pixels of a cell become rows of pixels.
        ink = glyphs[letters].transpose(0, 2, 1, 3).reshape(lines * CELL_HEIGHT, -1, 1)
        tint = colors.repeat(CELL_HEIGHT, 0).repeat(CELL_WIDTH, 1)
        return np.where(ink, tint, np.array(TEXT_BACKGROUND, np.uint8))


def noise(size: tuple[int, int], count: int) -> list[Frame]:
    """So many frames of noise, each in its own memory."""
    film = Film("noise", *size)
    return [film.frame(number) for number in range(count)]


def there_and_back(pictures: Frame) -> list[Frame]:
    """The frames of a loop. A picture that is shown twice is one array."""
    there = [*pictures]
    return there + there[-2:0:-1]


def apart(shown: Frame, expected: Frame) -> Frame:
    """The absolute difference of each value. A plain difference would wrap around in uint8."""
    return np.maximum(shown, expected) - np.minimum(shown, expected)


def psnr_db(pairs: Iterable[tuple[Frame, Frame]]) -> float:
    """The peak signal-to-noise ratio of luma (BT.601), of all frames together: each as shown, and as sent.

    Of luma, because 4:2:0 loses more color than an encoder does.
    """
    squares = [np.mean(np.square((shown.astype(np.float32) - sent) @ LUMA)) for shown, sent in pairs]
    return float(10 * np.log10(255**2 / max(np.mean(squares), 1e-6)))
