"""A simulation with a variable time step: a double pendulum, whose solver takes small steps where much happens.

    python examples/pendulum.py --output pendulum.mp4

Each step of the solver is a frame with its own time, `Encoder.write(frame, time_s=…)`: the video runs at the speed of
the pendulum, whatever the steps are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock import Encoder

GRAVITY = 9.81
# Of the angles, in radians, for each step.
TOLERANCE = 1e-5
LONGEST_STEP_S = 1 / 24
TRAIL_S = 0.5


def rates(state: np.ndarray) -> np.ndarray:
    """How fast two angles and their speeds change, for rods of 1 m and equal masses."""
    upper, lower, upper_speed, lower_speed = state
    sine, cosine = np.sin(upper - lower), np.cos(upper - lower)
    pulls = np.array(
        [
            -(lower_speed**2) * sine - 2 * GRAVITY * np.sin(upper),
            upper_speed**2 * sine - GRAVITY * np.sin(lower),
        ]
    )
    speeding = np.linalg.solve([[2, cosine], [cosine, 1]], pulls)
    return np.array([upper_speed, lower_speed, *speeding])


def step(state: np.ndarray, step_s: float) -> np.ndarray:
    """The state one step later, by the classical Runge-Kutta method."""
    first = rates(state)
    second = rates(state + step_s / 2 * first)
    third = rates(state + step_s / 2 * second)
    fourth = rates(state + step_s * third)
    return state + step_s / 6 * (first + 2 * second + 2 * third + fourth)


def simulate(state: np.ndarray) -> Iterator[tuple[float, np.ndarray]]:
    """Times and states. Each step is as long as the tolerance allows: two halves of it must agree with the whole."""
    time_s, step_s = 0.0, LONGEST_STEP_S
    while True:
        yield time_s, state
        while True:
            halves = step(step(state, step_s / 2), step_s / 2)
            error = np.abs(halves - step(state, step_s))[:2].max()
            next_s = min(LONGEST_STEP_S, step_s * min(2, 0.9 * (TOLERANCE / (error + 1e-12)) ** 0.2))
            if error <= TOLERANCE:
                break
            step_s = next_s
        time_s, step_s, state = time_s + step_s, next_s, halves


class PendulumPainter:
    """Paints the pendulum's rods, and where its end has been, into NumPy arrays."""

    def __init__(self, width: int, height: int) -> None:
        self._rows, self._columns = np.mgrid[:height, :width].astype(np.float32)
        self._center, self._rod = np.array([width, height]) / 2, 0.23 * min(width, height)
        self._trail = np.zeros((height, width), np.float32)
        self._last_s = 0.0

    def paint(self, frame: np.ndarray, time_s: float, state: np.ndarray) -> None:
        """Paints the picture at `time_s` into `frame`, height × width × 3 of uint8."""
        joint = self._center + self._rod * np.array([np.sin(state[0]), np.cos(state[0])])
        end = joint + self._rod * np.array([np.sin(state[1]), np.cos(state[1])])
        self._trail *= np.exp((self._last_s - time_s) / TRAIL_S)
        self._last_s = time_s
        np.maximum(self._trail, self._line(end, end, 0.12), out=self._trail)
        rods = np.maximum(self._line(self._center, joint, 0.05), self._line(joint, end, 0.05))
        colors = (
            np.multiply.outer(self._trail, (255, 120, 30)) + np.multiply.outer(rods, (200, 210, 230)) + 20
        )
        np.minimum(colors, 255, out=frame, casting="unsafe")

    def _line(self, start: np.ndarray, end: np.ndarray, thickness: float) -> np.ndarray:
        """1 near the line between two points, and 0 elsewhere."""
        (x, y), along = start.astype(np.float32), (end - start).astype(np.float32)
        there = ((self._columns - x) * along[0] + (self._rows - y) * along[1]) / max(
            along @ along, np.float32(1e-9)
        )
        nearest = np.clip(there, 0, 1)
        distance = np.hypot(self._columns - x - nearest * along[0], self._rows - y - nearest * along[1])
        return np.clip(thickness * self._rod - distance + 0.5, 0, 1).astype(np.float32)


def main() -> None:
    options = parse_options()
    width, height = options.size
    painter = PendulumPainter(width, height)
    frame = np.empty((height, width, 3), np.uint8)
    times_s = []
    with Encoder(options.output, size=(width, height), fps=None) as encoder:
        for (time_s, state), _ in zip(
            simulate(np.array([2.5, 2.0, 0.0, 0.0])), range(options.frames), strict=False
        ):
            painter.paint(frame, time_s, state)
            encoder.write(frame, time_s=time_s)
            times_s.append(time_s)
    steps_ms = 1000 * np.diff(times_s)
    print(f"{options.output}: {len(times_s)} frames, {steps_ms.min():.1f} to {steps_ms.max():.1f} ms apart")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulates a double pendulum into a video of variable rate.")
    parser.add_argument("--output", type=Path, default=Path("pendulum.mp4"))
    parser.add_argument("--size", type=int, nargs=2, default=(640, 480), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--frames", type=int, default=300)
    return parser.parse_args()


if __name__ == "__main__":
    main()
