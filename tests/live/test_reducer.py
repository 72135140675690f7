"""What is judged of a running job is, in the end, what the post-mortem says of the same bytes."""

import json
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aggregator.correlate.judge import judge
from aggregator.discover import Discovery, arrange, discover, look
from aggregator.live.reducer import Reducer
from aggregator.opening import ReadNotes
from aggregator.pipeline import collect
from aggregator.reference import newest_date
from aggregator.verdict import to_json
from aggregator.walk import walk

RUNS = sorted(path.parent for path in (Path(__file__).parents[2] / "sample_runs").glob("*/expected.json"))
MANY = 100
"""With so many logs the ends that are read line by line are as short as can be."""


class Watch:
    """A job folder whose files are fed as a test likes. Streams have the paths' places in sorted order as numbers."""

    def __init__(self, folder):
        self.folder = folder
        self.taken = {}
        self.reopened = []
        self.reducer = Reducer(str(folder), self.reopen)
        self.paths = sorted(str(path) for path in folder.rglob("*") if path.is_file())

    def reopen(self, stream):
        self.reopened.append(stream)
        yield bytes(self.taken.get(stream, b""))

    def feed(self, stream, data):
        self.taken[stream] = self.taken.get(stream, b"") + data
        self.reducer.feed(stream, data)

    def arrange(self, paths=None):
        """Tell of the files that are there, or of some of them; gives the streams of the logs."""
        notes, seen, files = ReadNotes(), {}, []
        for real, shown in walk([self.folder], self.folder, notes):
            if (paths is None or real in paths) and (file := look(real, shown, seen, notes)) is not None:
                files.append(file)
        sources = sorted(arrange(files), key=lambda source: source.index)
        logs = Discovery(self.folder, str(self.folder), tuple(sources), ()).logs
        streams = {self.paths.index(str(source.real)): source for source in logs}
        others = [source for source in sources if source not in logs]
        self.reducer.arrange(streams, others=others, skipped=notes.items, reference_ns=newest_date(sources))
        return list(streams)

    def feed_all(self, size=1000):
        for stream in self.arrange():
            data = Path(self.paths[stream]).read_bytes()
            for start in range(len(self.taken.get(stream, b"")), len(data), size):
                self.feed(stream, data[start : start + size])


def answer(verdict):
    return json.loads(json.dumps(to_json(verdict)))


def postmortem(folder):
    return collect(discover([str(folder)]))


def write(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def rank_log(rank, steps=40, error=None):
    rows = [f"2026-12-01 10:00:00,000 [rank {rank}] INFO initialised process group: rank {rank} of 4"]
    rows += [
        f"2026-12-01 10:{n // 60:02}:{n % 60:02},000 [rank {rank}] INFO step {n}/99999 loss 5.3" for n in range(steps)
    ]
    if error is not None:
        rows += ["Traceback (most recent call last):", '  File "/w/train.py", line 9, in main', "    run()", error]
    return "".join(f"{row}\n" for row in rows).encode()


def job(steps=40):
    return {f"rank_{n}.log": rank_log(n, steps, "KeyError: 'labels'" if n == 2 else None) for n in range(4)}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_any_pieces_in_any_order_with_anything_asked_in_between_end_in_the_post_mortem_s_verdict(run, seed):
    draw = Random(seed)
    watch = Watch(run / "job")
    left = {stream: Path(path).read_bytes() for stream, path in enumerate(watch.paths)}
    there = set()
    while left:
        action = draw.random()
        if action < 0.03:
            watch.arrange(there)
        elif action < 0.05 and there:
            watch.reducer.verdict(exact=draw.random() < 0.3)
        else:
            stream = draw.choice(list(left))
            there.add(watch.paths[stream])
            size = draw.choice([1, 7, 300, 5_000, 100_000])
            watch.feed(stream, left[stream][:size])
            left[stream] = left[stream][size:]
            if not left[stream]:
                del left[stream]
    watch.arrange()
    wanted = postmortem(run / "job")
    assert watch.reducer.evidence(exact=True) == wanted
    assert answer(watch.reducer.verdict(exact=True)) == answer(judge(wanted))


def test_what_judging_writes_into_the_evidence_is_forgotten(tmp_path):
    write(tmp_path, job())
    watch = Watch(tmp_path)
    watch.feed_all()
    first = answer(watch.reducer.verdict())
    assert answer(watch.reducer.verdict()) == first
    assert answer(watch.reducer.verdict(exact=True)) == answer(judge(postmortem(tmp_path)))


def test_the_failed_rank_is_named_without_reading_every_tail(tmp_path):
    write(tmp_path, job(steps=2_000))
    watch = Watch(tmp_path)
    watch.feed_all()
    assert watch.reducer.verdict().first_failure.ranks == (2,)
    assert watch.reopened == sorted(watch.reopened)  # once each, when it was arranged


def test_bytes_that_came_before_their_file_was_arranged_are_read_when_it_is(tmp_path):
    write(tmp_path, job())
    watch = Watch(tmp_path)
    watch.feed(2, (tmp_path / "rank_2.log").read_bytes()[:500])
    assert watch.reducer.evidence().scans == ()
    watch.arrange()
    assert watch.reducer.evidence().bytes == 500


def test_a_renamed_log_goes_on_without_being_read_again(tmp_path):
    write(tmp_path, {"train.log": rank_log(0), "other.log": rank_log(1)})
    watch = Watch(tmp_path)
    watch.feed_all()
    watch.reopened.clear()
    (tmp_path / "other.log").rename(tmp_path / "train.log.1")
    watch.paths[0] = str(tmp_path / "train.log.1")
    watch.arrange()
    assert watch.reopened == []
    assert watch.reducer.evidence(exact=True) == postmortem(tmp_path)


def test_a_large_log_is_read_again_for_an_exact_answer_where_the_number_of_files_changed(tmp_path):
    write(tmp_path, {"rank_0.log": rank_log(0, 30_000)})
    watch = Watch(tmp_path)
    watch.feed_all(100_000)
    write(tmp_path, {f"rank_{n}.log": rank_log(n, 3) for n in range(1, MANY)})
    watch.paths += sorted({str(path) for path in tmp_path.iterdir()} - set(watch.paths))
    watch.reopened.clear()
    watch.feed_all()
    watch.reducer.verdict()
    assert 0 not in watch.reopened
    assert watch.reducer.evidence(exact=True) == postmortem(tmp_path)
    assert watch.reopened[-1] == 0


def test_stamps_without_a_year_follow_the_time_at_which_the_file_was_written_last(tmp_path):
    rows = b"".join(b"I1003 18:37:%02d.123456 77 main.cc:5] step %d\n" % (n % 60, n) for n in range(2_000))
    write(tmp_path, {"train.log": rows + b"E1003 18:38:00.123456 77 x.cc:1] RuntimeError: CUDA out of memory. Tried\n"})
    for year in (2021, 2024):
        os.utime(tmp_path / "train.log", ns=((year - 1970) * 31_556_952 * 10**9 + 5 * 10**15,) * 2)
        if year == 2021:
            watch = Watch(tmp_path)
            watch.feed_all()
    watch.arrange()
    assert watch.reducer.evidence(exact=True) == postmortem(tmp_path)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_utf_16_is_read_as_the_post_mortem_reads_it_even_if_it_ends_inside_a_letter(tmp_path, codec, size):
    text = rank_log(0, 5, "ValueError: schlecht für 😀").decode()
    write(tmp_path, {"rank_0.log": f"\ufeff{text}".encode(codec)[:-3]})
    watch = Watch(tmp_path)
    watch.arrange()
    watch.feed_all(size)
    assert watch.reducer.evidence(exact=True) == postmortem(tmp_path)
    assert "UTF-16" in answer(watch.reducer.verdict())["coverage"]["files_skipped"][0]["reason"]


def test_a_log_of_one_byte_is_read(tmp_path):
    write(tmp_path, {"rank_0.log": b"x"})
    watch = Watch(tmp_path)
    watch.feed_all()
    assert watch.reducer.evidence(exact=True) == postmortem(tmp_path)


def test_an_error_file_is_read_again_when_it_has_changed(tmp_path):
    write(tmp_path, {**job(), "attempt_0/3/error.json": b'{"message": '})
    watch = Watch(tmp_path)
    watch.feed_all()
    assert watch.reducer.evidence().extra_signals == ()
    told = {"message": "KeyError: 1", "extraInfo": {"timestamp": "1760000000"}}
    told["extraInfo"]["py_callstack"] = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nKeyError: 1\n'
    write(tmp_path, {"attempt_0/3/error.json": json.dumps({"message": told}).encode()})
    watch.arrange()
    assert watch.reducer.evidence(exact=True) == postmortem(tmp_path)
    assert len(watch.reducer.evidence().extra_signals) == 1


def test_the_newest_step_of_a_stream_can_be_asked_for(tmp_path):
    write(tmp_path, job())
    watch = Watch(tmp_path)
    watch.feed_all()
    assert [(mark.key.rank, mark.step) for mark in watch.reducer.latest(0, 300)] == [(0, 39)]
    assert watch.reducer.latest(99, 300) == []
