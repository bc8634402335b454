"""One record for each ending of image files."""

from typing import Any, NamedTuple


class Image(NamedTuple):
    """What is known of image files with an ending."""

    # A sequence of images may have them. DPX is left out: its samples may be logarithms of light, which nothing here
    # undoes.
    is_read: bool = True
    encoder: str | None = None  # FFmpeg's encoder, if it isn't called like the ending.
    # FFmpeg's option and its value that show a picture that moves again and again, as GIF is by default.
    loop: tuple[str, Any] | None = None
    # The container of such files with a number in their name, where the ending alone means another one.
    numbered: str | None = None
    # What browsers show (developer.mozilla.org: "Image file type and format guide").
    media_type: str | None = None


_JPEG, _READ = Image(encoder="mjpeg", media_type="image/jpeg"), Image()
_OTHER = Image(is_read=False)
_IMAGES = {
    **dict.fromkeys((".bmp", ".exr", ".hdr"), _READ),
    ".jp2": Image(encoder="jpeg2000"),
    **dict.fromkeys((".jpeg", ".jpg"), _JPEG),
    ".jxl": Image(encoder="libjxl"),
    **dict.fromkeys((".pam", ".pbm", ".pfm", ".pgm"), _READ),
    ".png": Image(media_type="image/png"),
    **dict.fromkeys((".pnm", ".ppm", ".qoi", ".sgi"), _READ),
    ".tga": Image(encoder="targa"),
    ".tif": Image(encoder="tiff"),
    ".tiff": _READ,
    ".webp": Image(encoder="libwebp", loop=("loop", 0), numbered="image2", media_type="image/webp"),
    ".apng": Image(is_read=False, loop=("plays", 0), media_type="image/apng"),
    ".avif": Image(is_read=False, media_type="image/avif"),
    ".gif": Image(is_read=False, media_type="image/gif"),
}
#: The endings of the images that a sequence may have.
READ = tuple(ending for ending, one in _IMAGES.items() if one.is_read)


def known(ending: str) -> Image:
    """The record of image files with an ending in lower case, with its dot."""
    return _IMAGES.get(ending, _OTHER)
