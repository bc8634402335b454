"""``penstock.images``: the files that a name stands for, their pixels, and files that are written."""

from __future__ import annotations

import errno
import gc
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.cases import eventually
from support.image_files import NUMBERS, jpeg, make_shots, png, ppm
from support.media import SIZE, flat, is_flat, make
from support.processes import script, started

from penstock import DecoderError, FFmpegWarning, StalledError, images, probe, read_video
from penstock.images import ImageReader, find_images
from penstock.video import DecoderSettings, find_ffmpeg

WIDTH, HEIGHT = SIZE


@pytest.fixture
def shots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of five images, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return make_shots(Path("shots"))


@pytest.fixture(autouse=True)
def nothing_is_left(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The folders with links to images are gone in the end, and FFmpeg is. FFmpeg's patterns have a % for a number."""
    folder = tmp_path_factory.mktemp("tmp-%d")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert ([*folder.iterdir()], started()) == ([], {})


def read(paths: Sequence[Path]) -> list[np.ndarray]:
    """The pixels of all images, which must be of `SIZE`."""
    with ImageReader(paths) as reader:
        assert (reader.size, reader.frame_bytes, len(reader)) == (SIZE, 3 * WIDTH * HEIGHT, len(paths))
        frames = []
        frame = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        while reader.readinto(frame):
            frames.append(frame.copy())
        assert reader.readinto(frame) == 0
    return frames


def read_until_failure(paths: Sequence[Path]) -> tuple[int, str]:
    """How many images can be read, and the failure of the next."""
    count = 0
    with pytest.raises(DecoderError) as failure, ImageReader(paths) as reader:
        frame = bytearray(reader.frame_bytes)
        while reader.readinto(frame):
            count += 1
    return count, str(failure.value)


def indices(frames: Sequence[np.ndarray]) -> list[int | None]:
    """Which flat frame each of them is."""
    return [next((index for index in range(5) if is_flat(frame, index)), None) for frame in frames]


def test_smoke(shots: Path) -> None:
    frames = read(find_images([shots]))
    assert [frame.tobytes() for frame in frames] == [flat(index).tobytes() for index in range(5)]


class TestFiles:
    """What names stand for."""

    @pytest.mark.parametrize(
        "names",
        [
            ["shots"],
            ["shots/"],
            ["shots/*.png"],
            ["s*/shot[0-9]*"],
            ["**/shot*.png"],
            ["shots/shot%d.png"],
            [f"shots/shot{number}.png" for number in NUMBERS],
            ["shots/shot[89].png", "shots/shot1*.png"],
        ],
    )
    def test_they_are_sorted_by_their_numbers(self, shots: Path, names: list[str]) -> None:
        assert find_images(names) == [shots / f"shot{number}.png" for number in NUMBERS]

    def test_files_stay_as_they_are_given(self, shots: Path) -> None:
        files = [shots / f"shot{number}.png" for number in (12, 8, 10, 8)]
        assert find_images(files) == files
        assert indices(read(files)) == [4, 0, 2, 0]

    def test_a_pattern_with_a_width_takes_only_what_it_means(self, shots: Path) -> None:
        for name in ("%003.png", "%004.png", "%5.png", "%x.png"):
            (shots / name).write_bytes(b"")
        assert find_images(["shots/%%03d.png"]) == [shots / "%003.png", shots / "%004.png"]

    def test_names_that_look_like_something_else(self, shots: Path) -> None:
        odd = shots.rename("%d [a]")
        for name, number in (("-x*.PNG", 8), ("file:y%d.png", 9), ("it's\n.png", 10)):
            (odd / f"shot{number}.png").rename(odd / name)
        files = [odd / name for name in ("-x*.PNG", "file:y%d.png", "it's\n.png")]
        assert indices(read(find_images(files))) == [0, 1, 2]
        assert len(find_images(["%d [a]"])) == 5

    def test_hidden_files_and_other_files_of_a_folder_are_left_out(self, shots: Path) -> None:
        for name in (".hidden.png", "notes.txt"):
            (shots / name).touch()
        assert len(find_images(["shots"])) == 5

    def test_a_gap_in_a_pattern_is_an_error_and_in_a_folder_it_is_none(self, shots: Path) -> None:
        (shots / "shot10.png").unlink()
        with pytest.raises(
            FileNotFoundError, match=re.escape("missing, while shot11.png is there")
        ) as failure:
            find_images([shots / "shot%d.png"])
        assert failure.value.filename == "shots/shot10.png"
        assert len(find_images([shots])) == 4

    @pytest.mark.parametrize(
        ("name", "filename", "reason"),
        [
            ("*.jpg", "*.jpg", "no file matches"),
            ("shots/%05d.png", "shots/%05d.png", "no file matches"),
            ("nowhere/%d.png", "nowhere", os.strerror(errno.ENOENT)),
            ("missing.png", "missing.png", os.strerror(errno.ENOENT)),
            ("empty", "empty", "there is no image in this folder"),
        ],
    )
    def test_names_that_stand_for_none(self, shots: Path, name: str, filename: str, reason: str) -> None:
        Path("empty").mkdir()
        with pytest.raises(FileNotFoundError) as failure:
            find_images([name])
        assert (str(failure.value.filename), failure.value.strerror) == (filename, reason)

    def test_names_that_are_wrong(self, shots: Path) -> None:
        (shots / "notes.txt").write_text("no image")
        with pytest.raises(ValueError, match=r"^shots/notes\.txt: not an image by its name"):
            find_images(["shots/*"])
        with pytest.raises(ValueError, match=r"^shots/%d-%d\.png: a pattern has one number"):
            find_images(["shots/%d-%d.png"])


class TestReader:
    """Their pixels."""

    def test_kinds_may_be_mixed(self, tmp_path: Path) -> None:
        (tmp_path / "0.png").write_bytes(png(flat(0)))
        (tmp_path / "1.PNG").write_bytes(png(flat(1)))
        (tmp_path / "2.ppm").write_bytes(ppm(flat(2)))
        (tmp_path / "3.jpg").write_bytes(jpeg(flat(3), tmp_path))
        (tmp_path / "4.jpg").write_bytes(png(flat(4)))  # misnamed, as from many a site
        assert indices(read(find_images([tmp_path]))) == [0, 1, 2, 3, 4]

    def test_the_orientation_of_a_photograph_is_ignored(self, tmp_path: Path) -> None:
        # Orientation (0x112) is 6: to be turned by a quarter.
        note = (
            b"Exif\0\0" + b"MM\0*\0\0\0\x08" + b"\0\x01" + b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0" + b"\0\0\0\0"
        )
        plain = jpeg(flat(2), tmp_path)
        noted = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(note) + 2) + note + plain[2:]
        for index in range(2):
            (tmp_path / f"{index}.jpg").write_bytes(noted)
        assert indices(read(find_images([tmp_path]))) == [2, 2]

    @pytest.mark.parametrize("size", [(62, 48), (48, 64)])
    def test_another_size_is_named(self, shots: Path, size: tuple[int, int]) -> None:
        (shots / "shot10.png").write_bytes(png(flat(2, size)))
        count, reason = read_until_failure(find_images([shots]))
        assert count == 2
        assert reason.startswith(
            f"shots/shot10.png: {size[0]}x{size[1]} pixels, while shots/shot8.png has 64x48"
        )

    def test_another_size_of_another_kind_is_named(self, shots: Path) -> None:
        (shots / "shot13.ppm").write_bytes(ppm(flat(2, (48, 64))))
        count, reason = read_until_failure(find_images([shots]))
        assert (count, reason.startswith("shots/shot13.ppm: 48x64 pixels")) == (5, True)

    @pytest.mark.parametrize(
        ("index", "left"), [(0, 0), (2, 0), (4, 0), (2, 8), (2, 6000)], ids=lambda number: str(number)
    )
    def test_an_image_that_cannot_be_decoded_is_named(self, tmp_path: Path, index: int, left: int) -> None:
        picture = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        paths = [tmp_path / f"{number}.png" for number in NUMBERS]
        for path in paths:
            path.write_bytes(png(picture))
        os.truncate(paths[index], left)
        count, reason = read_until_failure(paths)
        assert count == index
        assert reason.startswith(f"{paths[index]}: this image cannot be decoded: ")
        assert " @ 0x" not in reason and "penstock-images-" not in reason

    def test_a_truncated_photograph_is_named(self, tmp_path: Path) -> None:
        noise = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        photograph = jpeg(noise, tmp_path)
        paths = [tmp_path / f"{index}.jpg" for index in range(3)]
        for path in paths:
            path.write_bytes(photograph)
        os.truncate(paths[1], len(photograph) // 2)
        count, reason = read_until_failure(paths)
        assert (count, reason.startswith(f"{paths[1]}: this image cannot be decoded")) == (1, True)

    def test_tiff_with_tags_that_ffmpeg_does_not_know(self, shots: Path) -> None:
        """As most files have. Damage is told all the same, though FFmpeg goes on, and that only at the end."""
        made = ["-i", "shots/shot8.png", "-pix_fmt", "rgba", "-compression_algo", "lzw"]
        subprocess.run([find_ffmpeg(), "-v", "error", *made, "shots/0.tif"], check=True)
        whole, wrong = Path("shots/0.tif").read_bytes(), Path("shots/2.tif")
        Path("shots/1.tif").write_bytes(whole)
        wrong.write_bytes(whole[:60] + b"\xff" * 8 + whole[68:])
        good = [Path("shots/0.tif"), Path("shots/1.tif")]
        assert indices(read(good)) == [0, 0]
        for paths in ([*good, wrong], [good[0], wrong, good[1], Path("shots/shot8.png")]):
            count, reason = read_until_failure(paths)
            assert (count, reason.startswith(f"{wrong}: this image cannot be decoded: Decoded only")) == (
                2,
                True,
            )

    def test_an_image_that_vanishes(self, shots: Path) -> None:
        paths = find_images([shots])
        paths[2].unlink()
        with pytest.raises(FileNotFoundError) as failure:
            ImageReader(paths)
        assert str(failure.value.filename) == "shots/shot10.png"

    def test_a_reader_that_is_dropped_ends_its_ffmpeg(self, shots: Path) -> None:
        reader = ImageReader(find_images([shots]) * 300)  # more than the pipe and the reader hold
        reader.readinto(bytearray(reader.frame_bytes))
        assert len(started()) == 1
        with pytest.warns(ResourceWarning):
            del reader
            gc.collect()
        assert eventually(lambda: not started())

    @pytest.mark.parametrize("index", [0, 1])
    def test_an_ffmpeg_that_does_nothing_is_a_stall(
        self, shots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: int
    ) -> None:
        monkeypatch.setattr(images, "DEFAULT_DECODER_SETTINGS", DecoderSettings(stall_timeout=0.5))
        sleepy = f"case $* in *'-c:v {('ppm', 'rawvideo')[index]} '*) exec sleep 1000;; esac"
        program = script(tmp_path / "ffmpeg", sleepy, f"exec '{find_ffmpeg()}' \"$@\"")
        with pytest.raises(StalledError), ImageReader(find_images([shots]), program) as reader:
            reader.readinto(bytearray(reader.frame_bytes))

    def test_wrong_arguments(self, shots: Path) -> None:
        with pytest.raises(ValueError, match="paths is empty"):
            ImageReader([])
        for path in (str(shots), shots):
            with pytest.raises(TypeError, match=r"pass find_images\(\['shots'\]\)"):
                ImageReader(path)  # type: ignore[arg-type]
        with ImageReader(find_images([shots])) as reader:
            with pytest.raises(ValueError, match="frame has 9217 bytes, and an image has 9216"):
                reader.readinto(bytearray(9217))
            assert reader.readinto(bytearray(9216)) == 9216
        with pytest.raises(DecoderError, match="/nowhere/ffmpeg"):
            ImageReader(find_images([shots]), "/nowhere/ffmpeg")


class TestEncoder:
    """Files that are written. `penstock decode` has more tests of them."""

    def test_a_sequence_in_a_folder_that_is_made(self, tmp_path: Path) -> None:
        pattern = tmp_path / "new%d" / "100%-%03d.png"
        with make(pattern, options={"start_number": 7}) as encoder:
            for index in range(3):
                encoder.write(flat(index))
        names = [f"100%-{number:03}.png" for number in (7, 8, 9)]
        assert sorted(path.name for path in pattern.parent.iterdir()) == names
        assert indices(read(find_images([pattern]))) == [0, 1, 2]
        assert encoder.report is not None and not encoder.report.warnings

    @pytest.mark.parametrize("ending", ["png", "bmp", "jpg", "tiff", "webp"])
    def test_one_image(self, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"shot.{ending}"
        with make(path) as encoder:
            encoder.write(flat(1))
        assert indices([read_video(path)[0]]) == [1]
        assert encoder.report is not None and not encoder.report.warnings

    def test_a_jpeg_has_all_chroma_any_size_and_good_quality(self, tmp_path: Path) -> None:
        size = (65, 49)
        picture = np.random.default_rng(1).integers(0, 256, (49, 65, 3), np.uint8)
        for name, options in (("good.jpg", {}), ("small.jpg", {"q:v": 20})):
            with make(tmp_path / name, size=size, options=options) as encoder:
                encoder.write(picture)
        assert probe(tmp_path / "good.jpg").video[0].pixel_format == "yuvj444p"
        assert (tmp_path / "good.jpg").stat().st_size > 2 * (tmp_path / "small.jpg").stat().st_size

    @pytest.mark.parametrize(
        ("name", "pixel_format"), [("a%d.bmp", "rgb48le"), ("a%d.jpg", "rgba"), ("a%d.jpg", "rgb48le")]
    )
    def test_what_images_cannot_hold_is_said(self, tmp_path: Path, name: str, pixel_format: str) -> None:
        with pytest.warns(FFmpegWarning, match=r"\.png keeps"):
            make(tmp_path / name, pixel_format=pixel_format).abort()

    @pytest.mark.parametrize("name", ["a.png", "a.tiff", "a%d.jpg"])
    def test_what_they_can_hold_is_not(
        self, tmp_path: Path, name: str, recwarn: pytest.WarningsRecorder
    ) -> None:
        make(tmp_path / name, pixel_format="rgb24" if name == "a%d.jpg" else "rgb48le").abort()
        assert not recwarn.list

    def test_a_pattern_with_two_numbers_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="one number"):
            make(tmp_path / "%d-%d.png")
        assert [*tmp_path.iterdir()] == []
