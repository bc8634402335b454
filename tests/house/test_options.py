"""The types of options that functions pass on to a class: they are the class's own parameters."""

from __future__ import annotations

import inspect
import typing

import pytest

from penstock import AudioDecoder, Decoder, Encoder
from penstock._decoding.audio import AudioOptions
from penstock._decoding.prefetching import DecoderOptions
from penstock._encoding.encoder_options import LikeOptions
from penstock._encoding.request import Request


@pytest.mark.parametrize(
    ("options", "made"), [(LikeOptions, Encoder), (DecoderOptions, Decoder), (AudioOptions, AudioDecoder)]
)
def test_options_are_the_parameters_of_the_class(options: type, made: type) -> None:
    parameters = inspect.signature(made).parameters.values()
    named = {one.name: one.annotation for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert {name: one.__forward_arg__ for name, one in typed(options).items()} == named


def test_a_request_has_the_arguments_of_an_encoder() -> None:
    made, asked = (inspect.signature(one).parameters for one in (Encoder, Request))
    assert list(asked) == [name for name in made if name != "progress"]
    for name, parameter in asked.items():
        assert (parameter.kind, parameter.default) == (made[name].kind, made[name].default), name


def typed(options: type) -> dict[str, typing.ForwardRef]:
    """The fields of a TypedDict, which has those of its bases."""
    return options.__annotations__
