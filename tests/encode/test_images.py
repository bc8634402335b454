"""Image files: what names stand for, a `Decoder` of them, and an `Encoder` that writes them."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.cases import a_few, allowed, eventually
from support.image_files import NUMBERS, jpeg, make_shots, png, ppm
from support.media import SIZE, ffmpeg, flat, is_flat, make

import penstock
from penstock import Decoder, DecoderError, FFmpegWarning, read_video
from penstock._decoding.image_files import find_images
from penstock.video import DecoderSettings, prefetch

WIDTH, HEIGHT = SIZE


@pytest.fixture
def shots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of five images, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return make_shots(Path("shots"))


def read(source: object, **options: object) -> list[np.ndarray]:
    """All pictures, which must be of `SIZE`."""
    with Decoder(source, **options) as decoder:  # type: ignore[arg-type]
        frames = list(decoder)
        assert (decoder.size, len(decoder)) == (SIZE, len(frames))
    return frames


def read_until_failure(source: object) -> tuple[int, str]:
    """How many images can be read, and the failure of the next."""
    count = 0
    with pytest.raises(DecoderError) as failure, Decoder(source) as decoder:  # type: ignore[arg-type]
        for _ in decoder:
            count += 1
    return count, str(failure.value)


def indices(frames: Sequence[np.ndarray]) -> list[int | None]:
    """Which flat frame each of them is."""
    return [next((index for index in range(5) if is_flat(frame, index)), None) for frame in frames]


def test_smoke(shots: Path) -> None:
    frames = read("shots")
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
    def test_images_are_sorted_by_their_numbers(self, shots: Path, names: list[str]) -> None:
        assert find_images(names) == [shots / f"shot{number}.png" for number in NUMBERS]

    def test_listed_files_keep_their_order(self, shots: Path) -> None:
        files = [shots / f"shot{number}.png" for number in (12, 8, 10, 8)]
        assert find_images(files) == files
        assert indices(read(files)) == [4, 0, 2, 0]

    def test_padded_pattern_matches_only_padded_numbers(self, shots: Path) -> None:
        for name in ("%003.png", "%004.png", "%5.png", "%x.png"):
            (shots / name).write_bytes(b"")
        assert find_images(["shots/%%03d.png"]) == [shots / "%003.png", shots / "%004.png"]

    def test_odd_names_are_taken_literally(self, shots: Path) -> None:
        odd = shots.rename("%d [a]")
        files = [odd / name for name in map(allowed, ("-x*.PNG", "file:y%d.png", "it's\n.png"))]
        for number, file in zip(NUMBERS[:3], files, strict=True):
            (odd / f"shot{number}.png").rename(file)
        assert indices(read(files)) == [0, 1, 2]
        assert len(find_images(["%d [a]"])) == 5

    def test_hidden_files_and_other_files_of_a_folder_are_left_out(self, shots: Path) -> None:
        for name in (".hidden.png", "notes.txt"):
            (shots / name).touch()
        assert len(find_images(["shots"])) == 5

    def test_gap_in_a_pattern_raises_and_gap_in_a_folder_does_not(self, shots: Path) -> None:
        (shots / "shot10.png").unlink()
        with pytest.raises(FileNotFoundError) as failure:
            Decoder(shots / "shot%d.png")
        assert Path(failure.value.filename) == shots / "shot10.png"
        assert len(find_images([shots])) == 4

    @pytest.mark.parametrize(
        ("name", "filename", "reason"),
        [
            ("*.jpg", "*.jpg", "no file matches"),
            ("shots/%05d.png", "shots/%05d.png", "no file matches"),
            ("nowhere/%d.png", "nowhere", ""),
            ("missing.png", "missing.png", ""),
        ],
    )
    def test_name_that_matches_no_image_raises(
        self, shots: Path, name: str, filename: str, reason: str
    ) -> None:
        with pytest.raises(FileNotFoundError) as failure:
            Decoder(name)
        assert (Path(failure.value.filename), failure.value.errno) == (Path(filename), errno.ENOENT)
        assert reason in failure.value.strerror


class TestDecoder:
    """Their pixels."""

    @pytest.mark.parametrize("source", ["shots", "shots/*.png", "shots/shot%d.png", ["shots/shot8.png"] * 3])
    def test_images_are_read_in_sequence_and_by_index(self, shots: Path, source: str | list[str]) -> None:
        with Decoder(source, fps=10) as decoder:
            frames = list(decoder)
            assert [frame.index for frame in frames] == [*range(len(decoder))]
            assert [frame.time_s for frame in frames] == pytest.approx([n / 10 for n in range(len(frames))])
            assert decoder.engine.name == "libav"
            assert (decoder.stream.frame_rate, decoder.stream.frames) == (10, len(frames))
            for frame in (decoder[-1], decoder.frame_at(10), *decoder[2::5]):
                assert np.array_equal(frame, frames[frame.index])
            assert np.array_equal(decoder.batch([2, 0, 2]), [frames[2], frames[0], frames[2]])

    def test_iteration_continues_after_an_image_by_index(self, shots: Path) -> None:
        with Decoder(shots) as decoder:
            assert next(decoder).index == 0
            assert decoder[3].index == 3
            assert next(decoder).index == 1

    def test_start_and_count_take_a_part(self, shots: Path) -> None:
        with Decoder(shots, fps=10, start=0.1, count=2) as decoder:
            assert (len(decoder), indices([*decoder]), indices([decoder[0]])) == (2, [1, 2], [1])
        with Decoder(shots, start=10) as decoder, pytest.raises(DecoderError):
            next(decoder)

    def test_size_argument_scales_images(self, shots: Path) -> None:
        with Decoder(shots, size=(32, None)) as decoder:
            assert [frame.shape for frame in decoder] == [(24, 32, 3)] * 5

    def test_relative_paths_survive_a_change_of_folder(
        self, shots: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Decoder("shots") as decoder:
            monkeypatch.chdir("/")
            assert indices([*decoder]) == [0, 1, 2, 3, 4]

    def test_pickled_decoder_reopens_its_images(self, shots: Path) -> None:
        with Decoder([shots / "shot9.png", shots / "shot8.png"], fps=12) as decoder:
            again = pickle.loads(pickle.dumps(decoder))
        with again:
            assert (indices([*again]), again.stream.frame_rate) == ([1, 0], 12)

    def test_prefetch_and_read_video_accept_images(self, shots: Path) -> None:
        assert indices(list(read_video(shots / "*.png"))) == [0, 1, 2, 3, 4]
        sources = ["shots", ["shots/shot9.png"]]
        assert [indices([*each]) for each in prefetch(sources, fps=3)] == [[0, 1, 2, 3, 4], [1]]

    def test_the_number_of_threads_changes_nothing(self, shots: Path) -> None:
        files = [*shots.iterdir()] * 5
        for threads in (1, 3):
            assert indices(read(files, settings=DecoderSettings(threads=threads))) == indices(read(files))

    def test_image_formats_can_be_mixed(self, tmp_path: Path) -> None:
        (tmp_path / "0.png").write_bytes(png(flat(0)))
        (tmp_path / "1.PNG").write_bytes(png(flat(1)))
        (tmp_path / "2.ppm").write_bytes(ppm(flat(2)))
        (tmp_path / "3.jpg").write_bytes(jpeg(flat(3), tmp_path))
        (tmp_path / "4.jpg").write_bytes(png(flat(4)))  # misnamed, as from many a site
        assert indices(read(tmp_path)) == [0, 1, 2, 3, 4]

    def test_a_png_after_a_jpeg_keeps_its_samples(self, tmp_path: Path) -> None:
        noise = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        (tmp_path / "0.jpg").write_bytes(jpeg(flat(3), tmp_path))
        (tmp_path / "1.png").write_bytes(png(noise))
        assert np.array_equal(read(tmp_path)[1], noise)

    def test_the_orientation_of_a_photograph_is_ignored(self, tmp_path: Path) -> None:
        # Orientation (0x112) is 6: to be turned by a quarter.
        note = (
            b"Exif\0\0" + b"MM\0*\0\0\0\x08" + b"\0\x01" + b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0" + b"\0\0\0\0"
        )
        plain = jpeg(flat(2), tmp_path)
        noted = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(note) + 2) + note + plain[2:]
        for index in range(2):
            (tmp_path / f"{index}.jpg").write_bytes(noted)
        assert indices(read(tmp_path)) == [2, 2]

    def test_fits_pictures_are_stretched_each(self, tmp_path: Path) -> None:
        cards = ("SIMPLE  =", "BITPIX  =", "NAXIS   =", "NAXIS1  =", "NAXIS2  =")
        values = ("T", "16", "2", "4", "1")
        head = "".join(f"{card}{value:>21}".ljust(80) for card, value in zip(cards, values, strict=True))
        stretched = ((0, 100, 200, 300), [0, 21845, 43690, 65535]), ((0, 1, 2, 30), [0, 2184, 4369, 65535])
        for samples, expected in stretched:
            data = (head + "END").ljust(2880).encode() + struct.pack(">4h", *samples).ljust(2880, b"\0")
            (tmp_path / "a.fits").write_bytes(data)
            with Decoder(tmp_path / "a.fits", pixel_format="source") as decoder:
                assert next(decoder).ravel().tolist() == expected

    def test_16_bits_and_alpha_are_kept_if_the_pixel_format_has_them(self, tmp_path: Path) -> None:
        frames = np.random.default_rng(1).integers(0, 65536, (3, HEIGHT, WIDTH, 4), np.uint16)
        with make(tmp_path / "%d.png", pixel_format="rgba64le") as encoder:
            for frame in frames:
                encoder.write(frame)
        assert np.array_equal(read(tmp_path, pixel_format="rgba64le"), frames)
        assert np.array_equal(read(tmp_path, pixel_format="rgb48le"), frames[..., :3])
        with pytest.warns(FFmpegWarning):
            assert read(tmp_path)[0].shape == (HEIGHT, WIDTH, 3)

    def test_16_bit_image_after_an_8_bit_image_warns(self, tmp_path: Path) -> None:
        (tmp_path / "0.png").write_bytes(png(flat(0)))
        with make(tmp_path / "1.png", pixel_format="rgb48le") as encoder:
            encoder.write(flat(1).astype(np.uint16) * 257)
        with pytest.warns(FFmpegWarning):
            assert indices(read(tmp_path)) == [0, 1]

    def test_exr_floats_are_kept_or_warn(self, tmp_path: Path) -> None:
        light = np.random.default_rng(1).random((3, HEIGHT, WIDTH), np.float32) * 100 - 50
        with make(tmp_path / "%d.exr", pixel_format="gbrpf32le") as encoder:
            encoder.write(light)
            encoder.write(-light)
        for pixel_format in ("source", "gbrpf32le"):
            [first, second] = read(tmp_path, pixel_format=pixel_format)
            assert first.tobytes() == light.tobytes() and second.tobytes() == (-light).tobytes()
        with pytest.warns(FFmpegWarning):
            Decoder(tmp_path).close()

    @pytest.mark.parametrize("ending", ["bmp", "png"])
    def test_grays_of_a_palette_are_exact(self, tmp_path: Path, ending: str) -> None:
        grays = np.arange(HEIGHT * WIDTH, dtype=np.uint8).reshape(HEIGHT, WIDTH)
        with make(tmp_path / f"%d.{ending}", pixel_format="gray") as encoder:
            encoder.write(grays)
        [frame] = read(tmp_path, pixel_format="gray")
        assert frame.tobytes() == grays.tobytes()

    def test_exr_with_alpha_keeps_its_samples(self, tmp_path: Path) -> None:
        light = np.random.default_rng(1).random((4, HEIGHT, WIDTH), np.float32)
        with make(tmp_path / "%d.exr", pixel_format="gbrapf32le") as encoder:
            encoder.write(light)
        [frame] = read(tmp_path, pixel_format="source")
        assert frame.tobytes() == light.tobytes()

    @pytest.mark.parametrize("size", [(62, 48), (48, 64)])
    def test_image_of_another_size_raises_and_is_named(self, shots: Path, size: tuple[int, int]) -> None:
        (shots / "shot10.png").write_bytes(png(flat(2, size)))
        count, reason = read_until_failure(shots)
        assert count == 2
        named = shots / "shot10.png"
        assert reason.startswith(f"all images must have the same size: {named} has {size[0]}x{size[1]}")

    @pytest.mark.parametrize(("index", "left"), [(0, 0), (4, 8), (2, 6000)], ids=lambda number: str(number))
    def test_an_image_that_cannot_be_decoded_is_named(self, tmp_path: Path, index: int, left: int) -> None:
        picture = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        paths = [tmp_path / f"{number}.png" for number in NUMBERS]
        for path in paths:
            path.write_bytes(png(picture))
        os.truncate(paths[index], left)
        count, reason = read_until_failure(paths)
        assert (count, reason.startswith(f"{paths[index]} can't be decoded")) == (index, True)

    @pytest.mark.parametrize(
        "ending", a_few(["bmp", "jp2", "jpg", "pam", "pgm", "png", "ppm", "sgi", "tga", "tiff", "webp"])
    )
    def test_a_truncated_image_is_named(self, tmp_path: Path, ending: str) -> None:
        codec = ("-c:v", "libwebp") if ending == "webp" else ()
        made = ("-f", "lavfi", "-i", "testsrc2=size=64x48,noise=alls=30", "-frames:v", 3)
        ffmpeg(*made, *codec, tmp_path / f"%d.{ending}")
        paths = find_images([tmp_path])
        os.truncate(paths[1], paths[1].stat().st_size * 2 // 3)
        count, reason = read_until_failure(tmp_path)
        assert (count, reason.startswith(f"{paths[1]} can't be decoded")) == (1, True)

    def test_tiff_with_tags_unknown_to_libav_is_decoded(self, shots: Path) -> None:
        """As most files have."""
        ffmpeg("-i", "shots/shot8.png", "-compression_algo", "lzw", "shots/0.tif")
        assert indices(read(["shots/0.tif", "shots/shot9.png"])) == [0, 1]

    def test_image_deleted_after_opening_raises(self, shots: Path) -> None:
        with Decoder(shots) as decoder:
            (shots / "shot12.png").unlink()
            with pytest.raises(FileNotFoundError) as failure:
                list(decoder)
            assert Path(failure.value.filename) == shots / "shot12.png"
            with pytest.raises(FileNotFoundError):
                decoder[4]
            assert indices([decoder[3]]) == [3]

    def test_a_decoder_that_is_dropped_ends_its_threads(self, shots: Path) -> None:
        before = {*threading.enumerate()}
        decoder = Decoder([*shots.iterdir()] * 30)
        next(decoder)
        with pytest.warns(ResourceWarning):
            del decoder
            gc.collect()
        assert eventually(lambda: not {*threading.enumerate()} - before)

    @pytest.mark.parametrize(
        ("source", "options", "error"),
        [
            ([], {}, ValueError),
            (["shots/shot8.png", "a.mp4"], {}, TypeError),
            *(
                ("shots", options, ValueError)
                for options in ({"fps": 0}, {"filters": "hflip"}, {"stream": 1})
            ),
            *(("", {}, FileNotFoundError), ("films", {}, IsADirectoryError), ("films/*", {}, ValueError)),
            ("shots/%d-%d.png", {}, ValueError),
        ],
        ids=str,
    )
    def test_wrong_arguments_are_refused(
        self, shots: Path, source: object, options: dict[str, object], error: type[Exception]
    ) -> None:
        Path("films").mkdir()
        Path("films/film.mp4").touch()
        with pytest.raises(error):
            Decoder(source, **options)  # type: ignore[arg-type]

    @pytest.mark.linux("FIFOs")
    def test_a_fifo_is_refused_as_an_image(self, shots: Path) -> None:
        os.mkfifo("fifo.png")
        with pytest.raises(OSError):
            Decoder(["fifo.png", "shots/shot8.png"])

    def test_images_have_no_audio(self, shots: Path) -> None:
        with Decoder(shots) as decoder, pytest.raises(DecoderError):
            decoder.audio()


class TestEncoder:
    """Files that are written. `penstock decode` has more tests of them."""

    def test_image_sequence_is_written_into_a_new_folder(self, tmp_path: Path) -> None:
        pattern = tmp_path / "new%d" / "100%-%03d.png"
        with make(pattern, options={"start_number": 7}) as encoder:
            for index in range(3):
                encoder.write(flat(index))
        names = [f"100%-{number:03}.png" for number in (7, 8, 9)]
        assert sorted(path.name for path in pattern.parent.iterdir()) == names
        assert indices(read(pattern)) == [0, 1, 2]
        assert encoder.report is not None and not encoder.report.warnings

    @pytest.mark.parametrize("ending", ["png", "bmp", "jpg", "tiff", "webp"])
    def test_single_image_is_written(self, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"shot.{ending}"
        with make(path) as encoder:
            encoder.write(flat(1))
        assert indices(list(read_video(path))) == [1]
        assert encoder.report is not None and not encoder.report.warnings

    def test_jpeg_has_full_chroma_any_size_and_good_quality(self, tmp_path: Path) -> None:
        size = (65, 49)
        picture = np.random.default_rng(1).integers(0, 256, (49, 65, 3), np.uint8)
        for name, options in (("good.jpg", {}), ("small.jpg", {"q:v": 20})):
            with make(tmp_path / name, size=size, options=options) as encoder:
                encoder.write(picture)
        assert penstock.probe(tmp_path / "good.jpg").video[0].pixel_format == "yuvj444p"
        assert (tmp_path / "good.jpg").stat().st_size > 2 * (tmp_path / "small.jpg").stat().st_size

    @pytest.mark.parametrize(
        ("name", "pixel_format"), [("a%d.bmp", "rgb48le"), ("a%d.jpg", "rgba"), ("a%d.jpg", "rgb48le")]
    )
    def test_samples_that_an_image_format_cannot_hold_warn(
        self, tmp_path: Path, name: str, pixel_format: str
    ) -> None:
        with pytest.warns(FFmpegWarning):
            make(tmp_path / name, pixel_format=pixel_format).abort()

    @pytest.mark.parametrize("name", ["a.png", "a.tiff", "a%d.jpg"])
    def test_samples_that_an_image_format_holds_do_not_warn(
        self, tmp_path: Path, name: str, recwarn: pytest.WarningsRecorder
    ) -> None:
        make(tmp_path / name, pixel_format="rgb24" if name == "a%d.jpg" else "rgb48le").abort()
        assert not recwarn.list

    def test_a_pattern_with_two_numbers_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError):
            make(tmp_path / "%d-%d.png")
        assert [*tmp_path.iterdir()] == []


def test_duration_of_a_single_image_is_not_checked(tmp_path: Path) -> None:
    assert penstock.write_video(tmp_path / "a.jpg", [np.zeros((48, 64, 3), np.uint8)], 1).warnings == ()
