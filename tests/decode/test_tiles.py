"""Pictures as phones store them: in tiles, of which one isn't the picture, and turned."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Decoder, probe
from penstock.errors import DecoderError

# avifenc --grid 2x2 red.png green.png blue.png yellow.png, each of 64 × 64 pixels. FFmpeg can't write grids.
_GRID = (
    "c-muNU{FXasVqn=%S>Yc0uY^>nP!-qnV9D5Xz0km!1ypXwIq=N0yHvGa*CjAhJwuG5(XrYlbHlFhOZ#ABo{2m2*hETIr+&Tjtc_="
    "D_8`GnK*$o2Llt7CkUif8JM9wGa#+Pzyjq(f#q1Cym~N?fnh>sW**owu#6Otlgb3OF})}=#W_DGAM8|^3?s;{#4-azEHcbEWms^^"
    "u%gK*WEQ2SL4!ghB{Mf2teXjFHVfE=GcyZ{3V?KcW<hd3NKIyOK`K;z0~8AsWL9K?1eiHEIDnLJa(+%xUUE(a&@5gCwgxn94p7XK"
    "SZ3(lr~no-$}Gr*MHeuznHiaw8JJjDm|B?`m?0DkgkptI3=E5NQxbs@$;b$FLW2+k7pH}2{ofWA6DbEHF);@=iNqF$EzPeKy}YFR"
    "lnzgAl;KH0RV0c~r1GpvT62;3<)C}7aT)aT^1`X=Woha&)T|5@a4Cv<ZE4-#9>ebNbuxPc0K36`c>"
)

# heif-enc of a picture of 66 × 67 pixels, from red at the top to blue.
_ODD = (
    "c-muNV30^FsVvAy%}izhg51nBLkOF3U2bYgA_D{{W~Ag4LD>uinaL##Xn?OEvm_VHVgh1;%#=ik5+?>{AZd}Alb_58WVkp0<ryJb"
    "7|+323_%D{IL!gpmzkFaH&qnKNo4}50IJC-OEzRc5(FzrFUm{-F>huT6cqsJ?U@D1`9QiHsM?v4g#+$fxep9~{{H&Kz`)O}05nb9"
    "fsu#t|9_AIW`?;tKqQ0QE+z*>pq#c7BO|KB0+mK})osx$RhI4CAs}F&01^cgib_EB>@JK4i#8}Z0BsS;EG|fe+UNxGJr*%g@CX!S"
    "R%C(%n7O#PfRt2bK`t!hfdRwR$i%?J#M}awDN0R)1$jzlZaO&NKtUFj3kh;R4aW7t4Nq&TUsatq|9eUGtG3a-FHKqt)FpO5d$jUE"
    "+ux9P#pih+&kmTvJdbN?=r_x?2WNK7Sh_0yey;cZWkLOCWR539Uszfi+n}^^?Y|}f1v+u@"
)


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.avif"
    path.write_bytes(zlib.decompress(base64.b85decode(_GRID)))
    return path


@pytest.mark.parametrize("options", [{}, {"isolated": True}, {"filters": "null"}])
def test_one_tile_is_not_returned_for_a_picture(grid: Path, options: dict[str, object]) -> None:
    with pytest.raises(DecoderError, match="4 tiles"):
        Decoder(grid, **options)  # type: ignore[arg-type]


def test_probe_says_that_a_stream_is_a_tile(grid: Path) -> None:
    assert [video.is_tile for video in probe(grid).video] == [True] * 4
    assert "tile of a picture" in probe(grid)._repr_html_()


def test_a_tile_can_be_asked_for(grid: Path) -> None:
    with Decoder(grid, stream=3) as decoder:
        assert next(decoder)[0, 0].tolist() == pytest.approx([255, 255, 0], abs=9)


def test_a_picture_in_a_single_tile_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "odd.heic"
    path.write_bytes(zlib.decompress(base64.b85decode(_ODD)))
    with Decoder(path) as decoder:
        [frame] = decoder
        assert not decoder.stream.is_tile and decoder.size == (66, 68)
        assert frame[0, 0].tolist() == pytest.approx([255, 0, 0], abs=9)
        assert frame[66, 65].tolist() == pytest.approx([0, 0, 255], abs=9)


@pytest.mark.parametrize("options", [{}, {"isolated": True}])
@pytest.mark.parametrize(("orientation", "quarters"), [(1, 0), (6, 1), (3, 2), (8, 3)])
def test_a_picture_with_exif_data_is_turned_as_its_container_says(
    tmp_path: Path, orientation: int, quarters: int, options: dict[str, Any]
) -> None:
    Image, features = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.features")
    if not features.check("avif"):
        pytest.skip("this Pillow writes no AVIF")
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:24, :32] = 255
    image = Image.fromarray(picture)
    exif = image.getexif()
    exif[0x112] = orientation
    image.save(tmp_path / "a.avif", exif=exif.tobytes(), quality=90)
    with Decoder(tmp_path / "a.avif", **options) as decoder:
        assert decoder.stream.rotation == 90 * quarters
        assert np.allclose(next(decoder), np.rot90(picture, -quarters), atol=40)
