"""The command that repeats a chart's measurement."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

import click

from benchmarks import capture, decode, encode, fan_out, machines, pipe, pipeline, relay, render, sound
from benchmarks.relay.ends import show_size

#: In the order of the report.
MODULES = (encode, decode, pipe, pipeline, relay, render, fan_out, capture, sound, machines)
BENCHMARKS = {one.BENCHMARK.name: one.BENCHMARK for one in MODULES}
COMMANDS = {one.BENCHMARK.name: one.main for one in MODULES}


def command_for(record: dict[str, Any], group: dict[str, Any]) -> str:
    """``make``, with the options that differ from the benchmark's defaults.

    A job that today's benchmark does not have, or has with other frames, is repeated by the commit that measured it.
    """
    name = record["benchmark"]
    asked = record["settings"] | _narrowed(name, group)
    usual = BENCHMARKS[name].settings
    asked["methods"] = [one for one in asked["methods"] if one in _names(usual.methods)]
    words = []
    for option in COMMANDS[name].params:
        value = asked.get(option.name or "")
        if value is not None and value != _plain(getattr(usual, option.name or "", None)):
            words += _words(option, value)
    target = "bench" if name == "pipe" else f"bench-{name.replace('_', '-')}"
    command = f'make {target} ARGS="{shlex.join(words)}"' if words else f"make {target}"
    if asked.get("jobs") and not _is_todays(name, group):
        commit = (record["software"]["git"] or "THE-COMMIT-OF-THIS-RECORD").partition(",")[0]
        return f"git checkout {commit}; {command}"
    return command


def _is_todays(benchmark: str, group: dict[str, Any]) -> bool:
    job = _job(benchmark, group)
    return job is not None and group.get("content") == job.about.get("content")


def _job(benchmark: str, group: dict[str, Any]) -> Any:
    """Today's job of a group's name, or None. A job of another size has the size in its name."""
    jobs = {job.name: job for job in BENCHMARKS[benchmark].settings.jobs}
    return jobs.get(group["name"].partition("-at-")[0])


def _narrowed(benchmark: str, group: dict[str, Any]) -> dict[str, Any]:
    """Settings that select the group alone."""
    match benchmark:
        case "encode" | "decode" | "render" | "sound" | "machines" | "capture" | "fan_out":
            name, _, size = group["name"].partition("-at-")
            job, frames = _job(benchmark, group), group.get("frames")
            usual = job.about.get("frames") if job else None
            return {"jobs": [name], "size": size or None, "frames": None if frames == usual else frames}
        case "pipe":
            encode = group["name"].partition(" to ")[2].partition(",")[0]
            return {"sizes": [group["size"]["name"]], "encodes": [encode], "buffers": [group["buffers"]]}
        case "relay":
            size = show_size(group["bytes"]).replace(" ", "")
            return {"ways": [group["way"]], "sizes": [size] if group["bytes"] else None}
    return {}


def _plain(setting: Any) -> Any:
    """A setting as a record has it."""
    return _names(setting) if isinstance(setting, tuple) else setting


def _names(setting: Iterable[Any]) -> list[Any]:
    return [getattr(one, "name", one) for one in setting]


def _words(option: click.Parameter, value: Any) -> list[str]:
    flag = option.opts[0]
    if value is True or value is False:
        return [flag] * value
    return [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
