"""The types of options that functions pass on to a class: they are the class's own parameters."""

from __future__ import annotations

import inspect
import typing

import pytest

from penstock import AudioDecoder, Decoder, Encoder
from penstock._decoding.audio import AudioOptions
from penstock._decoding.prefetching import DecoderOptions
from penstock._encoding.encoder_options import LikeOptions


@pytest.mark.parametrize(
    ("options", "made"), [(LikeOptions, Encoder), (DecoderOptions, Decoder), (AudioOptions, AudioDecoder)]
)
def test_options_are_the_parameters_of_the_class(options: type, made: type) -> None:
    parameters = inspect.signature(made).parameters.values()
    named = {one.name: one.annotation for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert {name: one.__forward_arg__ for name, one in typed(options).items()} == named


def typed(options: type) -> dict[str, typing.ForwardRef]:
    """The fields of a TypedDict, which has those of its bases."""
    return options.__annotations__
