"""Chooses what reads a `Decoder`'s source: libav in this process, or an FFmpeg program."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from penstock._common.deadline import Deadline
from penstock._decoding.confined_engine import isolation_of, read_confined
from penstock._decoding.libav_engine import LibavEngine
from penstock._decoding.open_video import OpenVideo, VideoInput
from penstock._decoding.options import AudioDecodeOptions, DecodeOptions
from penstock._decoding.plan import DecodePlan, alpha_decoder, as_stored, plan_decode
from penstock._decoding.program_engine import ProgramEngine
from penstock._decoding.sequence import Sequence, SequenceFrame
from penstock._decoding.session import numbered_stream
from penstock._facts.beginnings import Beginning, read_beginnings
from penstock._facts.completeness import INDEX_IS_LAST
from penstock._facts.file_checks import FileChecks
from penstock._facts.info import MediaInfo, Track, check_decodable, check_no_grid, without_decoder
from penstock._facts.opening import are_found, lacks_protocol, open_media
from penstock._facts.part import Part
from penstock._facts.probing import PATIENCE_S, answer_of, info_of, probe
from penstock._facts.source import Source
from penstock._ffmpeg.command import endpoints
from penstock._ffmpeg.program.capabilities import find_decoding_ffmpeg
from penstock._formats import codecs, containers
from penstock._formats.pixel_formats import has_palette
from penstock.errors import DecoderError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._facts.isolation import Isolation

_Opened: TypeAlias = tuple[Track, Sequence, SequenceFrame | DecoderError | None]


def why_program(opened: Source, options: DecodeOptions | AudioDecodeOptions) -> str | None:
    """Why the FFmpeg program reads a source; None if libav does."""
    if given := only_by_program(options, options.given_input):
        isolated = ["isolated=True"] if options.isolated else []
        return f"the FFmpeg program reads with {' and '.join([*isolated, *given])}"
    return "the FFmpeg program reads pipes and devices" if endpoints.is_sequential(opened.url) else None


def only_by_program(
    options: DecodeOptions | AudioDecodeOptions, input_options: Mapping[str, object]
) -> list[str]:
    """What of the options only the FFmpeg program can do, in words for it."""
    settings = options.settings
    reasons = {
        "filters": isinstance(options, DecodeOptions) and options.filters,
        "input_options": input_options,
        "follow_playlists": options.follow_playlists,
        "settings that name the program": settings.ffmpeg,
        "settings with a thread policy": settings.policy or settings.ffmpeg_policy,
    }
    return [reason for reason, is_given in reasons.items() if is_given]


def read_by_program(opened: Source, options: DecodeOptions, reason: str) -> ProgramEngine:
    """Reads by an FFmpeg program."""
    program = find_decoding_ffmpeg(options.settings.ffmpeg)
    if options.isolated:
        isolation = isolation_of(opened, options)
        return _read_probed(program, opened, isolation.media(PATIENCE_S), options, reason, isolation)
    source, media = _fetched(opened, options) or (opened, None)
    with source.closed_after_failure(opened):
        media = media or probe(source, follow_playlists=options.follow_playlists)
        return _read_probed(program, source, media, options, reason)


def _fetched(opened: Source, options: DecodeOptions) -> tuple[Source, MediaInfo] | None:
    """A source of the bytes of a URL, which another program fetches once, and the facts about them.

    None if they can't be read without seeking, or FFmpeg has to open the URL itself.
    """
    is_local = opened.single_pass is not None or endpoints.is_path(opened.url)
    if is_local or options.given_input or options.follow_playlists:
        return None
    source = Source(opened.given)
    with source.closed_after_failure(opened):
        source.fetch()
        with suppress(DecoderError):
            media = probe(source)
            # No packet came of an MP4 file whose index is at its end.
            if media.best_video is not None and media.best_video.pixel_format is not None:
                return source, media
    # The caller opens the URL again, and lets FFmpeg seek in it.
    source.close()
    return None


def _read_probed(
    program: str,
    opened: Source,
    media: MediaInfo,
    options: DecodeOptions,
    reason: str,
    isolation: Isolation | None = None,
) -> ProgramEngine:
    is_unread = bool(media.video) and all(one.pixel_format is None for one in media.video)
    if is_unread and opened.single_pass is not None and containers.known(media.container).has_boxes:
        raise DecoderError(f"no frame can be read from {media.path} in order: {INDEX_IS_LAST}")
    video, source, sandbox = chosen_video(media, options), opened.url, None
    checks = FileChecks(Track(source, media, video))
    if isolation is not None:
        source, sandbox, checks = isolation.file.url, isolation.sandbox, isolation.about(video.index)
    # If it begins at the time of a frame, FFmpeg drops all frames before it.
    rate = checks.even_rate()
    begins = None if options.start is None or rate else checks.begins(options.start)
    if begins is not None:
        options = replace(options, start=begins.shown_s)
    keyframe_s = None if begins is None else begins.keyframe_s
    track = Track(source, media, video)
    plan = plan_decode(program, track, options, sandbox, keyframe_s, rate=rate)
    is_made_here = isolation is None and _is_made_here(opened, plan)
    stored = as_stored(program, track, plan) if is_made_here else None
    return ProgramEngine(
        *(program, opened, plan, reason, checks, isolation, stored), knows_first=begins is not None
    )


def _is_made_here(opened: Source, plan: DecodePlan) -> bool:
    """Whether libav's filters make the frames, as they do for ``decoder[i]``: the program may be another version."""
    options, video, layout = plan.options, plan.track.video, plan.layout
    is_program_only = options.filters or options.given_input or options.follow_playlists
    if is_program_only or endpoints.identity(opened.url) is None:
        return False  # without frames by number
    is_filtered = plan.ffmpeg_format != video.pixel_format or plan.rotation_filters
    is_scaled = (layout.width, layout.height) != (video.width, video.height)
    # A palette may change with each frame, and goes with it.
    is_made = bool(is_filtered or is_scaled or plan.is_reframed)
    return is_made and not has_palette(video.pixel_format) and video.pixel_format is not None


def read_by_libav(opened: Source, options: DecodeOptions) -> LibavEngine:
    """Reads by libav, in this process or in a confined one."""
    if options.isolated:
        return read_confined(opened, options, lambda media: chosen_video(media, options))
    return read_in_process(opened, options)


def read_in_process(opened: Source, options: DecodeOptions) -> LibavEngine:
    """Reads by libav in this process, unless it lacks the protocol."""
    is_url = not endpoints.is_path(opened.url)
    whole, part = (_opened_once, _opened_at) if is_url else (_opened_quickly, _probed)
    opening = partial(whole if options.start is None else part, opened, options)
    try:  # on a thread, because a server may never answer
        track, sequence, ahead = (
            answer_of(opened.path, opening, Deadline(PATIENCE_S)) if is_url else opening()
        )
    except DecoderError as error:
        if not lacks_protocol(error):
            raise
        scheme = opened.url.partition("://")[0]
        return read_by_program(opened, options, f"libav lacks the protocol {scheme}")
    reason = f"libav reads {'URLs' if is_url else 'files'}, in this process"
    return LibavEngine(plan_decode(None, track, options), sequence, reason, ahead, may_hang=is_url)


def _probed(opened: Source, options: DecodeOptions) -> _Opened:
    """Opens a file that is to be read from `start` on, once its facts are known."""
    media = probe(opened)
    video = chosen_video(media, options)
    track, decoder = Track(opened.url, media, video), alpha_decoder(None, opened.url, video, options)
    part = Part.of(options.start, options.end, media, video)
    return track, Sequence(input_of(track, options, decoder), part), None


def _opened_quickly(opened: Source, options: DecodeOptions) -> _Opened:
    """Opens a file as `_opened_once`, without a frame that libav decodes for facts. Again with it, if none is there."""
    track, sequence, ahead = _opened_once(opened, options, decodes_first=True)
    if isinstance(ahead, SequenceFrame) or are_found(sequence.video.container):
        return track, sequence, ahead
    sequence.close()
    return _opened_once(opened, options)


def _opened_once(opened: Source, options: DecodeOptions, *, decodes_first: bool = False) -> _Opened:
    """Opens a file, and decodes its first frame, which shows the facts that the header does not have."""
    chosen, opened_video, beginnings = _opened_video(opened, options, decodes_first=decodes_first)
    sequence = Sequence(chosen, video=opened_video)
    ahead: SequenceFrame | DecoderError | None = None
    try:
        # A decoder gives the first frame some packets later.
        while (frame := sequence.advance()) is None:
            pass
        ahead, beginnings[chosen.index].frame = frame, frame.samples
        beginnings[chosen.index].pts = frame.pts
    except StopIteration:
        pass
    except DecoderError as failure:
        ahead = failure
    media = info_of(opened, sequence.video.container, beginnings)
    return Track(opened.url, media, chosen_video(media, options)), sequence, ahead


def _opened_at(opened: Source, options: DecodeOptions) -> _Opened:
    """Opens a URL that is to be read from `start` on. Its first keyframe shows the facts that the header lacks."""
    chosen, opened_video, beginnings = _opened_video(opened, options)
    first = beginnings[chosen.index]
    if (keyframe := next((one for one in first.packets if one.is_keyframe), None)) is not None:
        first.frame = opened_video.decode_alone(keyframe)
    media = info_of(opened, opened_video.container, beginnings)
    video = chosen_video(media, options)
    part = Part.of(options.start, options.end, media, video)
    return Track(opened.url, media, video), Sequence(chosen, part, opened_video), None


def _opened_video(
    opened: Source, options: DecodeOptions, *, decodes_first: bool = False
) -> tuple[VideoInput, OpenVideo, dict[int, Beginning]]:
    """Opens a file for its video, from its beginning, and the first packets of its streams."""
    container = open_media(
        opened.url,
        path=opened.path,
        stall_timeout=_stall_timeout(opened.url, options),
        decodes_first=decodes_first,
    )
    media = info_of(opened, container, {})
    video = chosen_video(media, options)
    beginnings, packets = read_beginnings(container, undecoded=video.index)
    decoder = alpha_decoder(None, opened.url, video, options)
    chosen = replace(input_of(Track(opened.url, media, video), options, decoder), decodes_first=decodes_first)
    own = [packet for packet in packets if packet.stream_index == video.index]
    # What can't be decoded again to check damage is decoded so that none is made up, where that can be had.
    is_checked = chosen.is_opened_once and chosen.threads is None and codecs.known(video.codec).marks_damage
    has_threads = (chosen.is_strict or chosen.is_opened_once) and not is_checked
    return chosen, OpenVideo(chosen, has_threads=has_threads, container=container, ahead=own), beginnings


def _stall_timeout(url: str, options: DecodeOptions) -> float | None:
    return None if endpoints.is_path(url) else options.settings.stall_timeout


def input_of(track: Track, options: DecodeOptions, decoder: str | None) -> VideoInput:
    """What libav reads, by that decoder."""
    return VideoInput(
        source=track.source,
        path=track.media.path,
        container=track.media.container,
        index=track.video.index,
        decoder=decoder,
        is_strict=not options.conceal_errors,
        threads=codecs.known(track.video.codec).right_threads or options.settings.threads,
        stall_timeout=_stall_timeout(track.source, options),
    )


def chosen_video(media: MediaInfo, options: DecodeOptions) -> MediaInfo.Video:
    """The video stream to decode."""
    video, stream = media.best_video, options.stream
    # Whoever passes a number wants that tile.
    if stream is None:
        check_no_grid(media)
    if stream is not None and media.video:
        video = numbered_stream(media.path, "video", media.video, stream)
    if video is None:
        raise DecoderError(
            without_decoder(media, "video") or f"{media.path} has no video, only {_kinds(media)}"
        )
    check_decodable(media.path, video)
    if not video.width or not video.height:
        animated = ". FFmpeg can't read animated WebP. Use Pillow" * codecs.known(video.codec).is_animated
        raise DecoderError(
            f"{media.path} doesn't say the size of its video, and may have no frames{animated}"
        )
    if options.is_source_format and video.pixel_format is None:
        raise DecoderError(f"{media.path} doesn't say the pixel format of its video, and may have no frames")
    return video


def _kinds(media: MediaInfo) -> str:
    kinds = [name for name, streams in (("a picture", media.video), ("audio", media.audio)) if streams]
    return " and ".join(kinds) or "other data"
