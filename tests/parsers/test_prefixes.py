import json
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.lineformats import FORMATS_DIR, check_format, load_format, load_formats
from parsers.prefixes import MAX_LAYERS, Origin, PrefixStripper, looks_labelled
from parsers.prefixrules import PrefixRules
from parsers.records import Known, Role
from parsers.timestamps import StampContext

FORMATS = tuple(load_format(FORMATS_DIR / f"prefixes_{name}.toml") for name in ("launchers", "libraries"))
CONTEXT = StampContext(1_927_000_000 * 10**9)  # January 2031
RULES = PrefixRules(FORMATS)
SHARED = PrefixStripper(RULES, CONTEXT)
TAGS = sorted(
    {
        sample.line.removesuffix(sample.rest)
        for fmt in FORMATS
        for prefix in fmt.prefixes
        for sample in prefix.samples
        if sample.rest
    }
)
TEXTS = ["Traceback (most recent call last):", '  File "a.py", line 7, in f', "    loss.backward()", "step: 3", "x", ""]


def strip(line: str) -> Origin:
    return SHARED.strip(line)


def forgetful(line: str) -> Origin:
    SHARED._chains.clear()
    return strip(line)


@pytest.mark.parametrize(
    ("line", "body", "told"),
    [
        (
            "2031-02-03T04:05:06.123456789Z stderr F [default3]:[rank11]: RuntimeError: x",
            "RuntimeError: x",
            {"rank": 11, "local_rank": 3, "stream": "stderr", "rank_how": Known.PREFIX},
        ),
        (
            "[pod/train-worker-3/pytorch] 2031-02-03T04:05:06.123456789Z [rank3]:   File",
            "  File",
            {"rank": 3},
        ),
        ("[1,mpirank:11,algo-2]<stderr>:  File", "  File", {"rank": 11, "rank_how": Known.TAG, "host": "algo-2"}),
        ("[1,3]<stdout>:[rank3]: x", "x", {"rank": 3, "rank_how": Known.TAG, "stream": "stdout"}),
        ("Tue Feb  3 04:05:06 2031[3]<stderr>:x", "x", {"rank": 3, "rank_how": Known.TAG}),
        ('<stderr rank="3">x', "x", {"rank": 3, "rank_how": Known.TAG}),
        ("2026-12-01 20:23:22,786 [rank 2] INFO tinylm: step 5/20", "step 5/20", {"rank": 2, "logger": "tinylm"}),
        (
            "[rank7]:[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog",
            "[Rank 2] Watchdog",
            {"rank": 7, "level": "E", "logger": "ProcessGroupNCCL.cpp"},
        ),
        ("[E ProcessGroupNCCL.cpp:474] [PG 0 Rank 7] x", "[PG 0 Rank 7] x", {"rank": None}),
        ("[2031-02-03 04:05:06,789] [INFO] [logging.py:129:log_dist] [Rank 4] step=1", "step=1", {"rank": 4}),
        ("[2031-02-03 04:05:06,789] [INFO] [logging.py:129:log_dist] [Rank -1] x", "x", {"rank": None}),
        ("[2031-02-03 04:05:06,789] torch.distributed.run: [WARNING] x", "x", {"level": "WARNING"}),
        ("2031-02-03 04:05:06.1: rank3[31079][MainThread]: INFO: composer.trainer: x", "x", {"rank": 3, "pid": 31079}),
        ("[2031-02-03 04:05:06,766][rank 3][INFO] - x", "x", {"rank": 3, "level": "INFO"}),
        ("2031-02-03 04:05:06.789 | ERROR    | train:main:12 - x", "x", {"level": "ERROR", "logger": "train"}),
        ("2031-02-03 04:05:06,789 - trainer - INFO - x", "x", {"level": "INFO", "logger": "trainer"}),
        ("2031-02-03 04:05:06\tWARNING services.py:85 -- x", "x", {"level": "WARNING", "logger": "services.py"}),
        ("[NeMo W 2031-02-03 04:05:06 nemo_logging:361 rank:3] x", "x", {"rank": 3}),
        ("slurmstepd-node-1: error: x", "x", {"host": "node-1", "level": "error", "logger": "slurmstepd"}),
        ("[2031-02-03T04:05:06.123] [123.0] error: x", "x", {"level": "error"}),
        ("Feb 03 04:05:06 node-b kernel: [12.000001] NVRM: x", "NVRM: x", {"host": "node-b", "logger": "kernel"}),
        ("kern  :err   : [12345.678901] NVRM: x", "NVRM: x", {"level": "err"}),
        ("\x1b[36m(W pid=41210, ip=10.4.0.7)\x1b[0m [rank2]: x", "x", {"rank": 2, "pid": 41210}),
        ("(VllmWorker rank=3 pid=55) ERROR 02-03 04:05:06 [core.py:75] x", "x", {"rank": None, "pid": 55}),
        ("worker-0   | [rank3]:   File", "  File", {"rank": 3}),
        ("\x1b[36mworker-0  | \x1b[0mx", "x", {"rank": None}),
        ("[36mproj_node_1  | [0m[rank3]: x", "x", {"rank": 3}),
        ("[Kworker-0 exited with code 1", "worker-0 exited with code 1", {"rank": None}),
        ("(worker1, rank=1, pid=88, ip=10.4.0.7) [rank9]: x", "x", {"rank": 9, "pid": 88}),
        ("Feb 03 04:05:06 node-b torchrun[812]: [rank3]: x", "x", {"rank": 3, "host": "node-b", "pid": None}),
        ("Feb 03 04:05:06 node-b python3[812]: x", "x", {"host": "node-b", "pid": 812}),
        ("gpu-a:41207:41391 [3] NCCL INFO x", "x", {"host": "gpu-a", "pid": 41207, "rank": None, "level": "INFO"}),
    ],
)
def test_prefixes_come_off_from_outside_to_inside(line, body, told):
    for _ in range(2):  # the second time by the remembered chain
        origin = strip(line)
        assert origin.body == body
        assert {name: getattr(origin, name) for name in told} == told
        assert line[origin.start :] == body


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        '  File "/opt/app/train.py", line 12, in main',
        "    loss.backward()",
        "  5%|▌         | 5/100 [00:10<03:10,  2.00s/it, loss=1.2]",
        "step: 3",
        "{'loss': 1.2345, 'epoch': 0.1}",
        "[0]:",
        "[Rank 3] Watchdog caught collective operation timeout",
        "[rank: 2] Child process with PID 90212 terminated with code 1.",
        "[epoch3]: loss 1.2",
        "[Gloo] Rank 1 is connected to 7 peer ranks.",
        "Rank 5: Completed store-based barrier",
        "rank 3 is not responding",
        "rank3 step=5",
        "ERROR: Unexpected bus error encountered in worker.",
        "RuntimeError: [/pytorch/pair.cc:534] Connection closed by peer [10.6.9.14]:51228",
        "foo bar: baz",
        "12:34: x",
        "3!: [grad.layer1]",
    ],
)
def test_ordinary_text_is_left_alone(line):
    origin = strip(line)
    assert (origin.body, origin.start, origin.rank, origin.local_rank) == (line, 0, None, None)
    assert origin.tags == {}


def test_an_srun_label_is_a_task_and_not_a_rank():
    origin = strip(' 3:   File "x.py"')
    assert (origin.tags, origin.rank, origin.body) == ({"task": "3"}, None, '  File "x.py"')
    assert strip("P1 3: x").tags == {"het": "1", "task": "3"}


def test_a_number_is_a_label_only_at_the_start_of_a_line():
    assert strip("[rank1]: 5: x").body == "5: x"


def test_a_file_without_labels_keeps_its_numbers():
    line = "2024: a year"
    assert PrefixStripper(RULES, CONTEXT, labelled=False).strip(line).body == line


def test_labels_are_recognised_by_the_share_of_lines_that_have_one():
    assert looks_labelled(["+ srun --label x", " 0: a", "10: b", "", "11:", "srun: error: x"])
    assert not looks_labelled(["epoch 1", "2024: a year", "step 3", "step 4"])
    assert not looks_labelled([])


def test_of_two_ranks_the_outer_counts_and_the_inner_is_kept():
    origin = strip("[1,3]<stderr>:[rank5]: x")
    assert (origin.rank, origin.rank_how, origin.tags["conflict_rank"]) == (3, Known.TAG, "5")


def test_of_two_stamps_the_outer_counts_but_a_wall_clock_beats_time_since_boot():
    outer = strip("2031-02-03T04:05:06.5Z [2031-02-03 09:05:06] x")
    assert outer.stamp is not None
    assert outer.stamp.zoned
    assert outer.tags["inner_ts"] == "2031-02-03 09:05:06"
    wall = strip("[12.000001] 2031-02-03 04:05:06 x")
    assert wall.stamp is not None
    assert not wall.stamp.boot


@pytest.mark.parametrize("blanks", range(4))
def test_indentation_behind_a_tag_survives(blanks):
    for tag in ("[rank3]: ", "[default3]:", " 3: ", "[1,3]<stderr>:", "2031-02-03T04:05:06.1Z ", "(W pid=1) "):
        assert strip(tag + " " * blanks + "x = 1").body == " " * blanks + "x = 1"


def test_a_blank_between_two_prefixes_is_passed_over():
    origin = strip("[1,9]<stderr>: node-c:4009:4260 [1] NCCL WARN NET/IB : Got async error event")
    assert (origin.rank, origin.host, origin.pid) == (9, "node-c", 4009)
    assert origin.body == "NET/IB : Got async error event"


def test_docker_json_is_unescaped_and_stripped_further():
    line = r'{"log":"[rank3]: RuntimeError: \"x\"\n","stream":"stderr","time":"2031-02-03T04:05:06.123456789Z"}'
    origin = strip(line)
    assert (origin.body, origin.rank, origin.stream, origin.start) == ('RuntimeError: "x"', 3, "stderr", 0)
    assert origin.stamp is not None
    assert origin.stamp.ns % 1000 == 789


@pytest.mark.parametrize(
    ("line", "body", "rank"),
    [
        ('{"time": "2031-02-03T04:05:06.789Z", "level": "ERROR", "rank": 3, "message": "boom"}', "boom", 3),
        ('{"timestamp": 1927000000.5, "severity": "INFO", "global_rank": "4", "msg": "hi"}', "hi", 4),
        ('{"level": "INFO", "event": "train", "step": 12, "rank": 0}', "train step=12", 0),
        (
            '{"level": "ERROR", "message": "failed", "exc_info": "Traceback\\nKeyError: 1"}',
            "failed\nTraceback\nKeyError: 1",
            None,
        ),
        (
            '{"text": "t\\n", "record": {"message": "m", "level": {"name": "INFO"}, "extra": {"rank": 2}}}',
            "m",
            2,
        ),
    ],
)
def test_json_log_records_are_read(line, body, rank):
    origin = strip(line)
    assert (origin.body, origin.rank) == (body, rank)


@pytest.mark.parametrize(
    "line",
    [
        '{"message": {"message": "KeyError: 1", "extraInfo": {"timestamp": "1927000000"}}}',
        '{"step": 3, "loss": 1.5, "time": 3.2}',
        '{"message": "no level, no time"}',
        '{"log": "torn',
        '{"a":' * 5000 + "}",
    ],
)
def test_other_json_is_left_alone(line):
    assert strip(line).body == line


def test_a_small_number_in_a_record_is_no_date():
    assert strip('{"message": "x", "level": "INFO", "time": 12.5}').stamp is None


def test_only_hosts_of_the_job_are_stripped_as_bare_names():
    stripper = PrefixStripper(RULES, CONTEXT, hosts=["node-b"])
    tagged, bracketed, other = (stripper.strip(f"{name} [rank3]: x") for name in ("node-b:", "[node-b]", "node-c:"))
    assert (tagged.host, tagged.rank, tagged.body) == ("node-b", 3, "x")
    assert (bracketed.host, bracketed.rank, bracketed.body) == ("node-b", 3, "x")
    assert (other.host, other.rank, other.body) == (None, None, "node-c: [rank3]: x")


def test_layers_are_bounded():
    tags = "[rank1]: " * 50
    assert strip(tags).body == "[rank1]: " * (50 - MAX_LAYERS)


def test_a_rank_that_is_no_number_of_a_rank_is_not_taken():
    assert strip("[rank99999999999]: x").rank is None


def test_an_unnamed_group_in_a_prefix_is_refused(tmp_path):
    path = tmp_path / "f.toml"
    path.write_text('id="f"\ntitle="t"\nurl="u"\n[[prefix]]\nid="p"\npattern="^(a)"\n', encoding="utf-8")
    assert any("a group has no name" in problem for problem in check_format(load_format(path)))


def test_every_prefix_leaves_of_its_sample_what_the_sample_says():
    for fmt in FORMATS:
        for prefix in fmt.prefixes:
            for sample in prefix.samples:
                if sample.rest is not None:
                    assert sample.line[: -len(sample.rest)] + sample.rest == sample.line
                    only = prefix.tags.get("only")
                    stripper = PrefixStripper(RULES, CONTEXT, numbered=only == "numbered", tagged=only == "tagged")
                    assert len(stripper.strip(sample.line).body) <= len(sample.rest), sample.line


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.lists(st.sampled_from(TAGS), max_size=4), st.sampled_from(TEXTS)), min_size=1, max_size=6))
def test_what_a_line_gives_does_not_depend_on_the_lines_before(lines):
    stripper = PrefixStripper(RULES, CONTEXT)
    for tags, text in lines:
        line = "".join(tags) + text
        assert stripper.strip(line) == forgetful(line)


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(TAGS), st.text(max_size=12)), max_size=6))
def test_hostile_lines_never_raise_and_lose_no_text(parts):
    line = "".join(parts)
    origin = strip(line)
    if "\x1b" not in line and "{" not in line:
        assert line[origin.start :] == origin.body
    assert origin.rank is None or origin.rank >= 0


@pytest.mark.parametrize("filler", ["[", "a", "1", " ", "a:", "(", "[rank", "2031-", "<", "a.b:1:", "{", "\x1b["])
def test_long_hostile_lines_are_stripped_in_no_time(filler):
    begin = process_time()
    strip(filler * (200_000 // len(filler)))
    assert process_time() - begin < 1


def test_stripping_leaves_every_message_of_the_formats_recognisable():
    formats = load_formats()
    stripper = PrefixStripper(PrefixRules(formats), CONTEXT, labelled=False)
    samples = [
        (message, sample)
        for fmt in formats
        for message in fmt.messages
        for sample in message.samples
        if message.role is not Role.IDENTITY  # a tag may be the whole of it: the rank is then on the line's origin
    ]
    lost = [
        f"{message.origin}: {sample.line[:80]}"
        for message, sample in samples
        if message.match(sample.line) is not None and message.match(stripper.strip(sample.line).body) is None
    ]
    assert lost == []


@pytest.mark.parametrize("line", ["loss-1 | 0.5", "step-5 | loss 2.1", "[5m 20s] done", "[30] x", "epoch 3  | loss"])
def test_text_with_a_bar_or_a_bracket_is_no_container(line):
    assert strip(line).body == line


def test_a_container_is_a_stream_of_its_own():
    assert strip("worker-12  | x").tags["pod"] == "worker-12"


def test_an_entry_of_the_journal_in_json_is_a_line():
    entry = {
        "__REALTIME_TIMESTAMP": "1927000000123456", "_HOSTNAME": "node-b", "SYSLOG_IDENTIFIER": "python3",
        "_PID": "812", "PRIORITY": "6", "MESSAGE": "[rank3]: x",
    }  # fmt: skip
    told = strip(json.dumps(entry))
    assert (told.body, told.rank, told.host, told.pid, told.logger) == ("x", 3, "node-b", 812, "python3")
    assert told.stamp.ns == 1927000000123456000
    assert strip(json.dumps(entry | {"SYSLOG_IDENTIFIER": "torchrun"})).pid is None


@pytest.mark.parametrize(
    ("message", "body"), [([120, 10, 121], "x\ny"), ([27, 91, 75, 120], "x"), ([300, "a", None, 120], "???x")]
)
def test_a_journal_gives_control_characters_as_bytes(message, body):
    assert strip(json.dumps({"__REALTIME_TIMESTAMP": "1927000000123456", "MESSAGE": message})).body == body


@pytest.mark.parametrize("time", ["", "x", -1, 1.5, None, "9" * 400])
def test_a_journal_without_a_time_that_can_be_read_has_none(time):
    assert strip(json.dumps({"__REALTIME_TIMESTAMP": time, "PRIORITY": "3", "MESSAGE": "text"})).stamp is None
