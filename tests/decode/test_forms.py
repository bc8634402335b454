"""What models take: a crop, a fit, channels first, and floats."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.clips import clip
from support.media import ffmpeg

from penstock import Decoder, Encoder, read_video
from penstock.video import DecoderSettings, find_ffmpeg, prefetch

PROGRAM = DecoderSettings(ffmpeg=find_ffmpeg())
ENGINES: list[dict[str, Any]] = [{}, {"settings": PROGRAM}, {"filters": "null"}, {"isolated": True}]
FLOATS: dict[str, Any] = {"dtype": "float32", "value_range": (0.0, 1.0)}
# Of 4:2:0, such a crop divides pixels that share a chroma sample.
CROPS = [(0, 0, 64, 48), (8, 4, 32, 20), (7, 5, 31, 21), (63, 47, 1, 1), (0, 0, 33, 48)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "wide.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=192x96:rate=30", "-frames:v", "4", "-pix_fmt", "yuv420p", path)
    return path


def first(path: Path, **options: Any) -> np.ndarray[Any, Any]:
    with Decoder(path, **options) as decoder:
        frame = next(decoder)
        assert frame.shape == decoder.shape and frame.dtype == decoder.dtype
        assert frame.nbytes == decoder.frame_bytes
        return np.asarray(frame)


@pytest.mark.parametrize("options", ENGINES, ids=str)
@pytest.mark.parametrize("size", [(192, 94), (190, 96)])
def test_cover_of_gray_is_cut_between_chroma_samples(
    wide: Path, size: tuple[int, int], options: dict[str, Any]
) -> None:
    whole = first(wide, pixel_format="gray", **options)
    covered = first(wide, pixel_format="gray", size=size, fit="cover", **options)
    left, top = (192 - size[0]) // 2, (96 - size[1]) // 2
    assert np.array_equal(covered, whole[top : top + size[1], left : left + size[0]])


@pytest.mark.parametrize("crop", CROPS, ids=str)
@pytest.mark.parametrize("name", ["h264", "h264_10bit", "rotated_90", "h264_rgb", "mjpeg_420", "prores"])
@pytest.mark.parametrize("pixel_format", ["rgb24", "gray", "rgb48le"])
def test_a_crop_is_a_part_of_the_upright_picture(
    name: str, crop: tuple[int, int, int, int], pixel_format: str
) -> None:
    left, top, width, height = crop
    if name == "rotated_90":
        left, top, width, height = crop = top, left, height, width
    whole = first(clip(name), pixel_format=pixel_format)
    part = first(clip(name), pixel_format=pixel_format, crop=crop)
    assert np.array_equal(part, whole[top : top + height, left : left + width])


@pytest.mark.parametrize("stored", ["yuyv422", "uyvy422", "yvyu422"])
def test_a_scaled_crop_between_chroma_samples_is_the_same_however_they_are_stored(
    stored: str, tmp_path: Path
) -> None:
    got = []
    for name in ("yuv422p", stored):
        path, source = tmp_path / f"{name}.nut", "testsrc2=size=64x48,format=yuv422p"
        ffmpeg(*("-f", "lavfi", "-i", source, "-frames:v", "1", "-pix_fmt", name, "-c:v", "rawvideo"), path)
        got.append(first(path, crop=(1, 1, 20, 20), size=(40, 40)).astype(int))
    assert np.abs(got[0] - got[1]).max() <= 2


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_every_engine_crops_alike(options: dict[str, Any]) -> None:
    whole = first(clip("h264"))
    for left, top, width, height in CROPS[1:3]:
        part = first(clip("h264"), crop=(left, top, width, height), **options)
        assert np.abs(part.astype(int) - whole[top : top + height, left : left + width]).max() <= 1


@pytest.mark.parametrize("size", [(48, 48), (64, 20), (33, 57)])
@pytest.mark.parametrize("pixel_format", ["rgb24", "gray"])
def test_cover_is_the_middle_of_the_picture_at_its_own_shape(
    wide: Path, size: tuple[int, int], pixel_format: str
) -> None:
    factor = max(size[0] / 192, size[1] / 96)
    whole = first(wide, size=(round(192 * factor), round(96 * factor)), pixel_format=pixel_format)
    left, top = (whole.shape[1] - size[0]) // 2, (whole.shape[0] - size[1]) // 2
    covered = first(wide, size=size, fit="cover", pixel_format=pixel_format)
    assert covered.shape[:2] == (size[1], size[0])
    assert np.abs(covered.astype(int) - whole[top : top + size[1], left : left + size[0]]).max() <= 1


@pytest.mark.parametrize("fill", [None, (1, 2, 3)])
def test_contain_has_all_of_the_picture_and_a_border(wide: Path, fill: tuple[int, ...] | None) -> None:
    whole = first(wide, size=(48, 24))
    contained = first(wide, size=(48, 47), fit="contain", fill=fill)
    assert np.array_equal(contained[11:35], whole)
    assert (contained[:11] == (fill or (0, 0, 0))).all() and (contained[35:] == (fill or (0, 0, 0))).all()
    alpha = first(wide, size=(48, 47), fit="contain", pixel_format="rgba")
    assert (alpha[..., 3] == 255).all()


def test_stretch_is_what_size_alone_does(wide: Path) -> None:
    assert np.array_equal(first(wide, size=(40, 40), fit="stretch"), first(wide, size=(40, 40)))


def test_a_crop_comes_before_the_size_and_the_fit(wide: Path) -> None:
    crop = (32, 16, 64, 64)
    assert first(wide, crop=crop, size=(None, 32)).shape == (32, 32, 3)
    assert np.array_equal(
        first(wide, crop=crop, size=(32, 32), fit="cover"), first(wide, crop=crop, size=(32, 32))
    )


@pytest.mark.parametrize("pixel_format", ["rgb24", "bgr24", "rgba", "gray", "rgb48le", "gray16le", "rgb48be"])
def test_channels_first_and_floats_are_those_samples(pixel_format: str) -> None:
    plain = first(clip("h264"), pixel_format=pixel_format)
    planes = plain[None] if plain.ndim == 2 else plain.transpose(2, 0, 1)
    assert np.array_equal(first(clip("h264"), pixel_format=pixel_format, channels_first=True), planes)
    most = np.iinfo(plain.dtype).max
    values = first(clip("h264"), pixel_format=pixel_format, channels_first=True, **FLOATS)
    assert values.dtype == np.float32 and np.array_equal(values, planes / np.float32(most))
    half = first(clip("h264"), pixel_format=pixel_format, dtype="float16", value_range=(-1.0, 1.0))
    # The nearest ones, rounded once.
    assert half.dtype == np.float16 and np.array_equal(half, (plain * 2.0 / most - 1).astype(np.float16))


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_every_engine_delivers_every_form(wide: Path, options: dict[str, Any]) -> None:
    form: dict[str, Any] = {"size": (40, 40), "fit": "contain", "channels_first": True, **FLOATS}
    expected = [first(wide, **form)]
    with Decoder(wide, **form, **options) as decoder:
        frames = list(decoder)
        assert len(frames) == 4 and decoder.shape == (3, 40, 40) and decoder.dtype == "<f4"
        assert np.abs(frames[0] - expected[0]).max() <= 1.5 / 255
        assert all(frame.flags.writeable and frame.planes[0].shape == (3, 40, 40) for frame in frames)
        if "filters" not in options:
            assert np.allclose(decoder[3], frames[3], atol=1.5 / 255)
            assert np.array_equal(decoder.batch([3, 0, 3]), [decoder[3], decoder[0], decoder[3]])


def test_a_batch_goes_into_memory_of_the_form(wide: Path) -> None:
    with Decoder(wide, size=(24, 24), fit="cover", channels_first=True, **FLOATS) as decoder:
        out = np.zeros((3, 3, 24, 24), np.float32)
        assert decoder.batch([2, 0, 2], out=out) is out
        assert all(np.array_equal(got, decoder[number]) for got, number in zip(out, (2, 0, 2), strict=True))
        strided = np.zeros((3, 3, 24, 48), np.float32)[..., ::2]
        assert np.array_equal(decoder.batch([2, 0, 2], out=strided), out)
        for wrong in (np.zeros((3, 24, 24, 3), np.float32), np.zeros((3, 3, 24, 24), np.float16)):
            with pytest.raises(ValueError, match="out must be"):
                decoder.batch([2, 0, 2], out=wrong)


def test_whole_videos_copies_rates_and_read_ahead_have_the_form(wide: Path) -> None:
    form: dict[str, Any] = {"crop": (32, 0, 96, 96), "size": (24, 24), "channels_first": True, **FLOATS}
    with Decoder(wide, **form) as decoder, pickle.loads(pickle.dumps(decoder)) as copy:
        frames = decoder.batch(range(4))
        assert np.array_equal(copy.batch(range(4)), frames)
    assert np.array_equal(read_video(wide, **form), frames)
    assert np.array_equal(read_video(wide, fps=15, **form), frames[::2])
    [ahead] = [np.array(list(decoder)) for decoder in prefetch([wide], **form)]
    assert np.array_equal(ahead, frames)
    buffer = np.zeros((3, 24, 24), np.float32)
    with Decoder(wide, **form) as decoder:
        assert decoder.readinto(buffer) == buffer.nbytes and np.array_equal(buffer, frames[0])


def test_an_encoder_like_the_decoder_takes_its_form(wide: Path, tmp_path: Path) -> None:
    with (
        Decoder(wide, size=(64, 64), fit="cover", channels_first=True, **FLOATS) as decoder,
        Encoder.like(decoder, tmp_path / "a.mkv", codec="ffv1") as encoder,
    ):
        for frame in decoder:
            encoder.write(frame)
    expected = first(wide, size=(64, 64), fit="cover")
    assert np.array_equal(first(tmp_path / "a.mkv"), expected)


def test_images_have_every_form(tmp_path: Path) -> None:
    ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=10", "-frames:v", "2", tmp_path / "%d.png")
    whole = first(tmp_path)
    part = first(tmp_path, crop=(7, 5, 31, 21), channels_first=True, **FLOATS)
    assert np.array_equal(part, whole[5:26, 7:38].transpose(2, 0, 1) / np.float32(255))


@pytest.mark.filterwarnings("ignore::penstock.FFmpegWarning")
def test_a_picture_that_changes_its_size_is_cropped_alike(tmp_path: Path) -> None:
    parts = []
    for size in ("64x48", "128x96"):
        path = tmp_path / f"{size}.h264"
        ffmpeg("-f", "lavfi", "-i", f"color=red:size={size}:rate=25", "-frames:v", "3", "-bf", "0", path)
        parts.append(path.read_bytes())
    (tmp_path / "both.h264").write_bytes(b"".join(parts))
    with Decoder(tmp_path / "both.h264", crop=(8, 8, 16, 16)) as decoder:
        frames = list(decoder)
    assert len(frames) == 6 and len({frame.tobytes() for frame in frames}) <= 2
    assert {frame.shape for frame in frames} == {(16, 16, 3)}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"crop": (0, 0, 65, 48)}, "64x48"),
        ({"crop": (60, 0, 8, 8)}, "64x48"),
        ({"crop": (-1, 0, 8, 8)}, "crop"),
        ({"crop": (0, 0, 0, 8)}, "crop"),
        ({"crop": (1, 0, 8, 8), "pixel_format": "yuv420p"}, "chroma"),
        ({"fit": "cover"}, "size"),
        ({"fit": "contain", "size": (10, None)}, "size"),
        ({"fit": "fill", "size": (10, 10)}, "fit"),
        ({"fill": (0, 0, 0)}, "contain"),
        ({"fit": "contain", "size": (10, 10), "fill": (0, 0)}, "fill"),
        ({"fit": "contain", "size": (10, 10), "pixel_format": "yuv420p"}, "rgb24"),
        ({"value_range": (0.0, 1.0)}, "dtype"),
        ({"dtype": "float32"}, "value_range"),
        ({"dtype": "float64", "value_range": (0.0, 1.0)}, "dtype"),
        ({"dtype": "float32", "value_range": (1.0, 0.0)}, "value_range"),
        ({"dtype": "float32", "value_range": (0.0, float("inf"))}, "value_range"),
        ({"dtype": "float16", "value_range": (0.0, 1e6)}, "value_range"),
        ({"channels_first": True, "pixel_format": "yuv420p"}, "channels_first"),
        ({"channels_first": True, "pixel_format": "source"}, "source"),
        ({"dtype": "float32", "value_range": (0.0, 1.0), "pixel_format": "gbrpf32le"}, "value_range"),
    ],
    ids=str,
)
def test_impossible_forms_are_refused_at_the_call(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Decoder(clip("h264"), **options)


@pytest.mark.linux("isolated=True")
@pytest.mark.parametrize(
    ("options", "word"), [({"crop": (60, 0, 8, 8)}, "64x48"), ({"fit": "cover"}, "size")], ids=str
)
def test_impossible_forms_of_an_isolated_file_are_refused_at_the_call(
    options: dict[str, Any], word: str
) -> None:
    """By what its facts tell, and before it is opened."""
    with pytest.raises(ValueError, match=word):
        Decoder(clip("h264"), isolated=True, **options)


@pytest.mark.parametrize("crop", [(0, 0, 8), "0:0:8:8", (0, 0, 8.5, 8)], ids=str)
def test_a_crop_has_four_whole_numbers(crop: Any) -> None:
    with pytest.raises(TypeError, match="crop"):
        Decoder(clip("h264"), crop=crop)
