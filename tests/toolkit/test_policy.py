"""Priorities and CPUs of threads, of this one and of those that serve it: as asked for, or told why not."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import eventually
from support.processes import run_script, succeeded
from support.this_process import open_fds, policy_of, threads, workers

import penstock
from penstock import Encoder, Pipeline, Tee, Writer, _native, cpu
from penstock._common.types import Priority
from penstock.cpu import ThreadPolicy
from penstock.pipeline import Stage
from penstock.video import EncoderSettings

NICE = {
    "background": 19,
    "lowest": 10,
    "below-normal": 5,
    "normal": 0,
    "above-normal": -5,
    "highest": -10,
    "time-critical": -20,
}
ALLOWED = sorted(policy_of().cpus)

UNPRIVILEGED = """
from penstock import cpu
from penstock.cpu import ThreadPolicy
import resource
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
def tell(applied):
    print(applied.priority, applied.scheduling_class, applied.nice, *applied.notes, sep="|")
"""

Result = TypeVar("Result")


def apart(work: Callable[[], Result]) -> Result:
    """What it gives on a thread of its own, whose policy ends with it."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def may_raise() -> bool:
    """Whether a thread here may have any niceness."""

    def raise_it() -> bool:
        if sys.platform == "win32":
            return True
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        except PermissionError:
            return False
        return True

    return apart(raise_it)


def unprivileged(code: str, nice_limit: int = 0) -> list[list[str]]:
    """What a program tells that may not lower its niceness beyond a limit: the fields of each answer."""

    def limit() -> None:
        import resource

        # The tests themselves may have been started with another.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        resource.setrlimit(resource.RLIMIT_NICE, (nice_limit, nice_limit))

    program = textwrap.dedent(UNPRIVILEGED) + textwrap.dedent(code)
    try:
        output = succeeded(run_script(program, preexec_fn=limit)).decode()
    except subprocess.SubprocessError:
        pytest.skip(f"no right to a niceness of 0, or to an RLIMIT_NICE of {nice_limit}, here")
    return [line.split("|") for line in output.splitlines()]


class TestSetPriority:
    @pytest.mark.parametrize("level", NICE)
    def test_set_priority_matches_the_system(self, level: Priority) -> None:
        if NICE[level] < policy_of().nice and not may_raise():
            pytest.skip("no right to raise priorities here")
        applied, (nice, is_idle, _) = apart(lambda: (cpu.set_priority(level), policy_of()))
        assert (applied.nice, applied.priority) == (nice, level) == (NICE[level], level)
        idle = level == "background"
        assert is_idle == idle
        assert applied.scheduling_class == ("idle" if idle else "other")
        assert set(applied.cpus) == policy_of().cpus
        if may_raise():
            assert applied.notes == ()

    def test_set_priority_changes_only_the_calling_thread(self) -> None:
        before = policy_of()
        apart(lambda: cpu.set_priority("lowest"))
        assert policy_of() == before

    def test_raised_priority_without_the_right_is_refused_with_reason_and_limit(self) -> None:
        levels = ("above-normal", "highest", "time-critical")
        answers = unprivileged(f"for level in {levels}: tell(cpu.set_priority(level))")
        for level, (priority, _, nice, note) in zip(levels, answers, strict=True):
            assert (priority, nice) == ("normal", "0")
            assert note.startswith(f"priority {level} (nice {NICE[level]}) was refused: Permission denied")
            assert "CAP_SYS_NICE" in note
            assert f"RLIMIT_NICE of {20 - NICE[level]}" in note

    def test_set_priority_goes_as_far_as_the_limit_allows(self) -> None:
        above, highest = unprivileged(
            'tell(cpu.set_priority("above-normal")); cpu.set_priority("normal"); tell(cpu.set_priority("highest"))',
            nice_limit=25,
        )
        assert above == ["above-normal", "other", "-5"]
        assert highest[:3] == ["above-normal", "other", "-5"]
        assert "The thread has nice -5 instead" in highest[3]

    def test_lowered_priority_without_the_right_notes_that_it_cannot_be_undone(self) -> None:
        lowest, back = unprivileged('tell(cpu.set_priority("lowest")); tell(cpu.set_priority("normal"))')
        assert lowest[:3] == ["lowest", "other", "10"]
        assert lowest[3].startswith("this can't be undone: nice 0 was refused: Permission denied")
        assert back[:3] == ["lowest", "other", "10"]

    def test_background_cannot_be_left_without_the_right(self) -> None:
        background, back = unprivileged(
            'tell(cpu.set_priority("background")); tell(cpu.set_priority("lowest"))'
        )
        assert background[:3] == ["background", "idle", "19"]
        assert [note.startswith("this can't be undone: ") for note in background[3:]] == [True, True]
        assert back[:3] == ["background", "idle", "19"]
        assert "scheduling class other instead of idle was refused" in back[4]


class TestPin:
    @pytest.mark.parametrize("kind", [list, tuple, set, frozenset, iter, np.array])
    def test_pin_accepts_any_iterable_of_numbers(self, kind: Callable[[list[int]], object]) -> None:
        applied, (_, _, cpus) = apart(lambda: (cpu.pin(kind(ALLOWED[-1:])), policy_of()))
        assert applied.cpus == (ALLOWED[-1],)
        assert cpus == {ALLOWED[-1]}


class TestPolicyBlocks:
    def test_policy_block_restores_if_it_raises(self) -> None:
        before = policy_of()
        with pytest.raises(KeyError), cpu.applied(cpus=ALLOWED[:1]):
            raise KeyError
        assert policy_of() == before

    def test_policy_blocks_can_be_nested_and_reused(self) -> None:
        before = policy_of()
        outer, inner = cpu.applied(cpus=ALLOWED), cpu.applied(ThreadPolicy(cpus=ALLOWED[:1]))
        for _ in range(2):
            with outer, inner:
                assert policy_of().cpus == {ALLOWED[0]}
            assert policy_of() == before
        with outer, pytest.raises(RuntimeError):
            outer.__enter__()

    def test_policy_block_notes_what_cannot_be_restored(self) -> None:
        [asked] = unprivileged("""
            before = os.sched_getaffinity(0)
            with cpu.applied(nice=7, cpus=[min(before)]) as applied:
                tell(applied)
            assert os.sched_getaffinity(0) == before
        """)
        *fields, note = asked
        assert fields == ["None", "other", "7"]
        assert note.startswith("this can't be undone: nice 0 was refused: Permission denied")

    def test_policy_block_must_end_on_its_own_thread(self) -> None:
        block = cpu.applied(cpus=ALLOWED[:1])
        apart(block.__enter__)
        with pytest.raises(RuntimeError):
            block.__exit__(None, None, None)

    @pytest.mark.linux("forks")
    def test_policy_block_restores_in_a_forked_child(self) -> None:
        code = """
            before = os.sched_getaffinity(0)
            with penstock.cpu.applied(cpus=[min(before)]):
                child = os.fork()
            assert os.sched_getaffinity(0) == before
            if child:
                assert os.waitpid(child, 0)[1] == 0
        """
        succeeded(run_script(code))


def refused(call: Callable[..., object], error: type[Exception], *wrong: object) -> list[tuple[object, ...]]:
    return [(call, error, one) for one in wrong]


@pytest.mark.parametrize(
    ("call", "error", "wrong"),
    [
        *refused(cpu.set_priority, ValueError, "", "Normal", "below normal"),
        *refused(cpu.set_priority, TypeError, None, 0, b"normal", ["normal"]),
        *refused(cpu.pin, ValueError, [], [-1], [2**64], iter(())),
        *refused(cpu.pin, TypeError, None, 0, "0", [0.0], ["0"], [True]),
        *refused(cpu.applied, TypeError, 3, {"nice": 1}),
        *refused(lambda policy: cpu.applied(policy, nice=1), ValueError, "lowest", ThreadPolicy(nice=1)),
        *refused(lambda priority: cpu.applied(priority=priority), ValueError, "high"),
        *refused(lambda cpus: ThreadPolicy(cpus=cpus), ValueError, [0, 10**6]),
        *refused(lambda nice: ThreadPolicy(nice=nice), ValueError, 20, -21),
        *refused(lambda nice: ThreadPolicy(nice=nice), TypeError, "low", 1.5),
        *refused(lambda nice: ThreadPolicy(priority="normal", nice=nice), ValueError, 0),
        *refused(lambda near: ThreadPolicy(near=near), ValueError, 0, -1, 2**70, ("cpu", -1), ("core", 1)),
        *refused(lambda near: ThreadPolicy(near=near), ValueError, ("cpu", 10**6), ("cpu", 2**70)),
        *refused(lambda near: ThreadPolicy(near=near), TypeError, "cpu", 1.5, True, ("cpu", "1"), (1, 2)),
    ],
)
def test_invalid_policy_is_refused(
    call: Callable[[Any], object], error: type[Exception], wrong: object
) -> None:
    with pytest.raises(error):
        call(wrong)


class TestNear:
    """On a machine with one L3 cache, being near is to be allowed everywhere; the core's tests make up others."""

    def test_near_a_process_that_ended_is_a_note(self) -> None:
        with subprocess.Popen([sys.executable, "-S", "-c", ""]) as other:
            other.wait()
        applied = apart(lambda: cpu.applied(near=other.pid).__enter__())
        [note] = applied.notes
        assert note.startswith(f"near thread {other.pid} was refused: ")
        assert set(applied.cpus) == set(ALLOWED)


class TestThreadPolicies:
    def test_thread_policies_are_values(self) -> None:
        policy = ThreadPolicy(priority="highest", cpus={1, 0}, near=("cpu", 3))
        assert (policy.priority, policy.nice, policy.cpus, policy.near) == (
            "highest",
            None,
            (0, 1),
            ("cpu", 3),
        )
        assert policy == ThreadPolicy(priority="highest", cpus=[1, 0, 1], near=("cpu", 3)) != ThreadPolicy()
        assert len({policy, ThreadPolicy(), ThreadPolicy(near=3), ThreadPolicy(near=("cpu", 3))}) == 4
        assert repr(ThreadPolicy(nice=-3, cpus=(0, 1))) == "ThreadPolicy(nice=-3, cpus=(0, 1))"
        with pytest.raises(AttributeError):
            policy.nice = 0

    @given(
        st.fixed_dictionaries(
            {},
            optional={
                "nice": st.integers(-20, 19),
                "cpus": st.sets(st.integers(0, 8191), min_size=1),
                "near": st.integers(1, 2**31 - 1) | st.tuples(st.just("cpu"), st.integers(0, 8191)),
            },
        ),
        st.sampled_from([None, *NICE]),
    )
    def test_repr_evaluates_to_an_equal_policy(
        self, fields: dict[str, object], priority: Priority | None
    ) -> None:
        if priority is not None:
            fields = {name: value for name, value in fields.items() if name != "nice"} | {
                "priority": priority
            }
        policy = ThreadPolicy(**fields)
        assert eval(repr(policy)) == policy
        assert policy.near == fields.get("near")
        assert policy.cpus == (tuple(sorted(fields["cpus"])) if "cpus" in fields else None)


class TestWorkers:
    @pytest.mark.parametrize("where", ["near", "cpus"])
    def test_writer_applies_its_policy(self, pair: tuple[int, int], where: str) -> None:
        mine, before = policy_of(), workers()
        place = {"cpus": ALLOWED[:1]} if where == "cpus" else {"near": threading.get_native_id()}
        stream = Writer(pair[1], policy=ThreadPolicy(priority="lowest", **place))
        stream.submit(b"x").wait(10)
        assert eventually(lambda: len(workers() - before) == 1)
        (worker,) = workers() - before
        assert policy_of(worker).nice == 10
        applied = stream.stats.policy
        assert (applied.priority, applied.nice, applied.notes) == ("lowest", 10, ())
        assert set(applied.cpus) == policy_of(worker).cpus
        assert where == "near" or applied.cpus == (ALLOWED[0],)
        assert policy_of() == mine, "it is the worker's alone"

    @pytest.mark.parametrize("absent", [1023, 8191])
    def test_refused_writer_policy_is_a_note(self, pair: tuple[int, int], absent: int) -> None:
        stream = Writer(pair[1], policy=ThreadPolicy(cpus=[absent]))
        stream.submit(b"x").wait(10)
        [note] = stream.stats.policy.notes
        assert str(absent) in note
        assert set(stream.stats.policy.cpus) == policy_of().cpus
        assert os.read(pair[0], 10) == b"x"

    def test_relay_applies_its_policy(self, pair: tuple[int, int], tmp_path: Path) -> None:
        with (tmp_path / "out").open("wb") as out:
            before = threads()
            ticket = penstock.pipes.start_relay(pair[0], out, policy=ThreadPolicy(priority="background"))
            assert eventually(lambda: ticket.policy is not None)
            assert [policy_of(worker).is_idle for worker in threads() - before] == [True]
            assert (ticket.policy.scheduling_class, ticket.policy.notes) == ("idle", ())
            os.close(pair[1])
            ticket.wait(10)

    @pytest.mark.linux("Tee")
    def test_tee_applies_its_policy(self, pair: tuple[int, int], tmp_path: Path) -> None:
        with (tmp_path / "out").open("wb") as out:
            tee = Tee(pair[0], out, policy=ThreadPolicy(nice=17, cpus=[8000]), start=False)
            assert tee.policy is None
            os.close(pair[1])
            tee.wait(10)
            assert tee.policy.nice == 17
            assert "8000" in tee.policy.notes[0]


class TestWords:
    """The word of a level, wherever a policy is taken."""

    @staticmethod
    def relayed(pair: tuple[int, int], policy: Any) -> object:
        with Path(os.devnull).open("wb") as out:
            os.write(pair[1], b"x")
            ticket = penstock.pipes.start_relay(pair[0], out, 1, policy=policy)
            ticket.wait(10)
            return ticket.policy

    @staticmethod
    def written(pair: tuple[int, int], policy: Any) -> object:
        with Writer(pair[1], policy=policy) as stream:
            stream.submit(b"x").wait(10)
            return stream.stats.policy

    @staticmethod
    def read(pair: tuple[int, int], policy: Any) -> object:
        os.write(pair[1], b"x")
        with penstock.Reader(pair[0], frame_bytes=1, policy=policy) as stream:
            stream.read(10)
            return stream.stats.policy

    @staticmethod
    def teed(pair: tuple[int, int], policy: Any) -> object:
        with Path(os.devnull).open("wb") as out:
            tee = Tee(pair[0], out, policy=policy)
            assert eventually(lambda: tee.policy is not None)
            applied = tee.policy
            tee.cancel()
            return applied

    @staticmethod
    def through_a_pipeline(pair: tuple[int, int], policy: Any) -> object:
        with Pipeline(
            [b"x"], Stage.checksum(), policies={"iterable": policy, "checksum": policy}
        ) as pipeline:
            pipeline.read(10)
            (applied,), (other,) = (stage.policies for stage in pipeline.stats.stages[:2])
        assert other.nice == applied.nice
        return applied

    @staticmethod
    def by_a_block(pair: tuple[int, int], policy: Any) -> object:
        block = cpu.applied(policy)
        return apart(block.__enter__)

    @staticmethod
    def in_settings(pair: tuple[int, int], policy: Any) -> object:
        settings = EncoderSettings(policy=policy, ffmpeg_policy=policy)
        assert settings.policy == settings.ffmpeg_policy
        return settings.policy

    WAYS = (
        *(relayed, written, read, through_a_pipeline, by_a_block),
        pytest.param(teed, marks=pytest.mark.linux("Tee")),
        pytest.param(in_settings, marks=pytest.mark.linux("ffmpeg_policy")),
    )

    @pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
    def test_priority_names_are_accepted_as_policies(
        self, way: Callable[..., Any], pair: tuple[int, int]
    ) -> None:
        assert way(pair, "lowest").priority == "lowest"
        for wrong, error, keyword in (("low", ValueError, "below-normal"), (5, TypeError, "ThreadPolicy")):
            with pytest.raises(error, match=keyword):
                way(pair, wrong)


@pytest.mark.linux("ffmpeg_policy")
class TestFFmpeg:
    @staticmethod
    def encode(output: Path, **options: object) -> Encoder:
        return Encoder(output, size=(64, 64), fps=30, options={"preset": "ultrafast"}, **options)

    def test_ffmpeg_policy_applies_to_all_its_threads(self, tmp_path: Path) -> None:
        before = policy_of()
        asked = ThreadPolicy(priority="lowest", cpus=ALLOWED[:1])
        with self.encode(tmp_path / "out.mp4", settings=EncoderSettings(ffmpeg_policy=asked)) as encoder:
            encoder.write(bytes(64 * 64 * 3)).wait(30)
            assert eventually(lambda: encoder.stats.frames_written == 1)
            threads = [int(entry.name) for entry in Path(f"/proc/{encoder.pid}/task").iterdir()]
            assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} == {10}
            assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset(ALLOWED[:1])}
            assert (encoder.ffmpeg_policy.priority, encoder.ffmpeg_policy.notes) == ("lowest", ())
        assert encoder.close().frames_encoded == 1
        assert policy_of() == before

    def test_ffmpeg_keeps_our_policy_without_its_own(self, tmp_path: Path) -> None:
        with self.encode(tmp_path / "out.mp4") as encoder:
            assert os.sched_getaffinity(encoder.pid) == set(ALLOWED)
            assert encoder.ffmpeg_policy is None
            encoder.write(bytes(64 * 64 * 3))

    def test_refused_ffmpeg_policy_is_a_note(self, tmp_path: Path) -> None:
        with self.encode(
            tmp_path / "out.mp4", settings=EncoderSettings(ffmpeg_policy=ThreadPolicy(cpus=[8000]))
        ) as encoder:
            assert "CPUs 8000 were refused" in encoder.ffmpeg_policy.notes[0]
            encoder.write(bytes(64 * 64 * 3))

    def test_ffmpeg_and_writer_can_stay_near_the_rendering_thread(self, tmp_path: Path) -> None:
        together = ThreadPolicy(near=threading.get_native_id())
        with self.encode(
            tmp_path / "out.mp4", settings=EncoderSettings(policy=together, ffmpeg_policy=together)
        ) as encoder:
            encoder.write(bytes(64 * 64 * 3)).wait(30)
            assert encoder.stats.writer.policy.cpus == encoder.ffmpeg_policy.cpus
            assert encoder.stats.writer.policy.notes == encoder.ffmpeg_policy.notes == ()

    def test_ffmpeg_that_cannot_be_started_leaves_no_descriptor(self, tmp_path: Path) -> None:
        no_program = tmp_path / "ffmpeg"
        no_program.write_text("#!/nowhere/interpreter\n")
        no_program.chmod(0o755)
        fds = open_fds()
        with pytest.raises(penstock.EncoderError):
            self.encode(
                tmp_path / "out.mp4",
                settings=EncoderSettings(ffmpeg=no_program, ffmpeg_policy=ThreadPolicy(nice=1)),
            )
        with pytest.raises(TypeError):
            self.encode(tmp_path / "out.mp4", settings=EncoderSettings(ffmpeg_policy=5))
        assert open_fds() == fds


def test_try_priorities_tries_every_level() -> None:
    before = policy_of()
    tried = dict(_native._try_priorities())
    assert list(tried) == list(NICE)
    for level, applied in tried.items():
        assert (applied.priority == level) == (applied.notes == ())
    without_rights = {level for level in NICE if NICE[level] >= before[0]}
    assert without_rights <= {level for level in tried if tried[level].notes == ()}
    assert policy_of() == before


def test_try_priorities_reports_refused_levels_without_the_right() -> None:
    answers = unprivileged(
        "from penstock import _native\nfor _, applied in _native._try_priorities(): tell(applied)"
    )
    assert [priority for priority, *_ in answers] == [*list(NICE)[:4], "normal", "normal", "normal"]
    assert [len(answer) for answer in answers] == [3, 3, 3, 3, 4, 4, 4]
