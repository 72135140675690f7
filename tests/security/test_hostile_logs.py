"""Log text made to mislead, to act, to leak, or to cost without bound."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from re import _parser as grammar  # the tree of a pattern tells which text makes it work hardest

import pytest

from aggregator import cli, safe
from aggregator.pipeline import postmortem
from aggregator.verdict import to_json
from parsers.lexicon import default_lexicon

HUGE = ("9" * 20, "9" * 4300, "9" * 5000, "-1", "0", "²", "٣")
UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def fault(rank=1, error="ValueError: bad sample", file="/w/train.py", function="main"):
    lines = ["Traceback (most recent call last):", f'  File "{file}", line 3, in {function}', "    step()", error]
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


def box(*ranks, pids=None):
    """The summary that torchrun prints, with an entry a rank."""
    entries = [
        f"[{number}]:\n  time      : 2031-02-03_04:00:30\n  host      : node-z\n  rank      : {rank} (local_rank: 5)\n"
        f"  exitcode  : 1 (pid: {pid})\n  error_file: <N/A>\n  traceback : x\n"
        for number, (rank, pid) in enumerate(zip(ranks, pids or ranks, strict=True))
    ]
    border = "=" * 60 + "\n"
    return f"{border}train.py FAILED\nRoot Cause (first observed failure):\n{''.join(entries)}{border}"


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def reports(tmp_path, capsys):
    """Judges a log, and gives back its report as text and as JSON."""

    def ask(text, name="job.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        told = []
        for form in ("text", "json"):
            code = cli.run(["postmortem", "-f", form, str(tmp_path)])
            out, err = capsys.readouterr()
            assert (code, err) == (0, "")
            told.append(out)
        json.loads(told[1])
        return told

    return ask


# Numbers

NUMBERED = {
    "rank tag": fault().replace("rank1", "rank{n}"),
    "frame": 'Traceback (most recent call last):\n  File "/w/a.py", line {n}, in main\n    x()\nValueError: x\n',
    "fault handler": (
        'Fatal Python error: Aborted\n\nCurrent thread 0x7f (most recent call first):\n  File "a", line {n} in f\n'
    ),
    "srun": "srun: error: node[0-{n}]: tasks 0-{n}: Exited with exit code {n}\nsrun: error: n1: task {n}: Killed\n",
    "slurmd": "slurmd: task 1 ({n}) exited. Killed by signal {n}\nslurmd: task {n} (1) exited with exit code {n}\n",
    "watchdog": (
        "[rank1]: [PG ID 0 PG GUID 0(default_pg) Rank {n}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn={n}, NumelOut={n}, Timeout(ms)={n}) ran for {n} milliseconds "
        "before timing out.\n"
    ),
    "barrier": "RuntimeError: [Rank 0]: Ranks {n}, {n} failed to pass monitoredBarrier in {n} ms\n",
    "world": "[rank1]: world_size={n}\n[rank0]: rank {n} of {n}\n" + fault(),
    "nccl": (
        "node:{n}:{n} [0] NCCL INFO comm 0x1 rank {n} nranks {n} cudaDev {n} nvmlDev {n} busId 5000 commId 0x1"
        " - Init START\n" + fault()
    ),
    "step": "[rank1]: step {n}/{n} loss 1.0\n" + fault(),
    "agent": (
        "E0203 04:05:06.000000 {n} torch/distributed/elastic/multiprocessing/api.py:1] failed (exitcode: {n}) "
        "local_rank: {n} (pid: {n}) of binary: /usr/bin/python\n"
        "W0203 04:05:06.000000 {n} torch/distributed/elastic/agent/server/api.py:1] [default] "
        "Worker group FAILED. {n}/{n} attempts left; will restart worker group\n"
    ),
    "box": box("{n}").replace("exitcode  : 1", "exitcode  : {n}").replace("[0]", "[{n}]"),
    "record": '{{"message": "CUDA out of memory", "rank": {n}, "step": {n}, "pid": {n}, "level": "x"}}\n',
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("where", NUMBERED)
def test_numbers_out_of_all_range_are_survived(where, reports):
    for number in HUGE:
        reports(NUMBERED[where].format(n=number))


@pytest.mark.timeout(30)
def test_dates_out_of_all_range_are_survived(reports):
    days = ["0000-00-00 00:00:00", "0001-01-01 00:00:00", "2262-04-12 00:00:00", "9999-12-31 23:59:59.999"]
    days += ["2031-02-30 25:61:61", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999999-14:00"]
    days += ["99999999999999999999.999", "[99999999999.999999]"]
    for day in days:
        lines = (fault() + "[rank1]: step 3 loss 1.0\n").splitlines(keepends=True)
        lines.append(f"slurmstepd: error: *** JOB 1 ON a CANCELLED AT {day.replace(' ', 'T')} ***\n")
        reports("".join(f"{day} {line}" for line in lines) + lines[-1])
    pod = "Name: w-0\nContainers:\n    State: Terminated\n      Reason: OOMKilled\n      Exit Code: 137\n"
    for day in (
        "Mon, 01 Jan 0001 00:00:00 +0000",
        "Fri, 31 Dec 9999 23:59:59 -9999",
        "Mon, 99 Foo 2031 99:99:99 +9999",
    ):
        reports(f"{pod}      Finished: {day}\n")


SMALL = {
    "task ranges": "srun: error: node1: tasks " + ",".join(["0-131071"] * 7000) + ": Exited with exit code 1\n",
    "wide range": "srun: error: node[0-99999999]: tasks 0-999999999: Exited with exit code 1\n",
    "host range": "error: *** JOB 1 ON n[0-99999999] CANCELLED AT 2031-01-01T00:00:00 DUE TO NODE FAILURE ***\n",
    "world": NUMBERED["watchdog"].format(n=1) + "[rank0]: world_size=1000000000\n",
    "pids": box(5, 90_000_000, pids=(1005, 90_001_000)),
}


def test_many_ranks_blamed_and_many_that_followed_do_not_multiply(tmp_path):
    told = "".join(f"srun: error: n{n}: task {n}: Exited with exit code {n % 255}\n" for n in range(12_000))
    (tmp_path / "slurm-1.out").write_text(told)
    document = to_json(postmortem([str(tmp_path)]))
    assert len(document["collateral"]) > 10_000
    assert len(json.dumps(document)) < 40 * len(told)  # 65 MB, where each told the names of all that were blamed


@pytest.mark.parametrize("what", SMALL)
def test_a_few_bytes_cannot_ask_for_much_memory(what, tmp_path):
    (tmp_path / "job.log").write_text(SMALL[what])
    done = subprocess.run(
        [sys.executable, "-m", "aggregator", "postmortem", tmp_path / "job.log"],
        capture_output=True,
        check=False,
        timeout=15,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)),
    )
    assert (done.returncode, done.stderr) == (0, b"")


# Text that acts

ACTIVE = ["\x1b[2J\x1b[H", "\x1b]0;own\x07", "\x1b]52;c;ZWNobw==\x07", "\x1b]8;;http://evil/\x1b\\click\x1b]8;;\x1b\\"]
ACTIVE += ["\x9b31m", "\x9d0;x\x9c", "a\rb\r", "\x08\x08", "\x7f", "\u202egnp\u202c", "\u2066x\u2069", "\u200b\ufeff"]
ACTIVE += ["\u2028\u2029", "\x0b\x0c", "\x85", "\x1b", "[red]x[/red]", "[/x]", "[@click=app.quit]q[/]", "::error::x"]
ACTIVE += ["</script>", "%s%n", "{0}", "\0" * 8, "e" + "\u0301" * 300]


@pytest.mark.parametrize("payload", ACTIVE, ids=ascii)
def test_s6_no_text_of_a_log_acts_on_the_reader_of_a_report(payload, reports):
    log = fault(1, f"ValueError: bad {payload} end", f"/w/{payload}.py", payload)
    log += f"[rank0]: {payload} RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB {payload}\n"
    log += f"srun: error: no{payload}de: task 3: Killed\n[rank3]: node{payload}:1:1 [0] NCCL WARN {payload}\n"
    text, document = reports(log, "run/x.log")
    assert UNSHOWN.search(text) is None
    assert UNSHOWN.search(json.dumps(json.loads(document), ensure_ascii=False)) is None
    assert not any(line.startswith("::") for line in text.split("\n"))


def test_s6_names_of_files_act_no_more_than_their_text(reports, tmp_path):
    (tmp_path / "run").mkdir()
    names = [
        b"rank_0\n.log",
        b"rank_1\x1b]0;x\x07.log",
        b"\xff\xfe\x80.log",
        b"[red]x.log",
        b"--help",
        b"-o",
        b"-",
        b" ",
    ]
    names += [b"::error::x.log", b"nccl_trace_rank_" + b"9" * 200, b"rank_" + b"9" * 200 + b".log"]
    names += ["\u202egol.1_knar".encode()]
    for name in names:
        (tmp_path / "run" / os.fsdecode(name)).write_text(fault())
    text, _ = reports(fault())
    assert UNSHOWN.search(text) is None


def test_s6_names_of_files_begin_no_line_of_our_own_log(tmp_path, capsys):
    (tmp_path / "rank_1\n::error::x.log").write_text(fault())
    assert cli.run(["postmortem", "-vv", str(tmp_path)]) == 0
    assert not any(line.startswith("::") for line in capsys.readouterr().err.splitlines())


@pytest.mark.parametrize(
    "escape",
    [
        r"\ud800",
        r"\udfff",
        r"\u0000",
        r"\u001b[2J",
        r"\u202e",
    ],
)
def test_what_json_can_spell_but_utf8_cannot_is_shown_harmlessly(escape, reports, tmp_path, capsys):
    message = f"{escape} RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    reports(f'{{"message": "{message}", "level": "ERROR", "rank": 1}}\n')
    assert cli.run(["export", str(tmp_path), "-o", str(tmp_path / "o.parquet"), "-q"]) == 0
    assert capsys.readouterr().err == ""
    stack = f'Traceback (most recent call last):\\n  File \\"/a{escape}.py\\", line 3, in {escape}\\n    x\\n'
    stack += f"ValueError: {escape}\\n"
    error = f'{{"message": {{"message": "x", "extraInfo": {{"py_callstack": "{stack}"}}}}}}'
    text, _ = reports(error, "0/error.json")
    assert UNSHOWN.search(text) is None


# Secrets

SECRETS = {
    "hf_" + "aB3dE5gH7j" * 4: "aB3dE5gH7jaB",
    "AKIAIOSFODNN7EXAMPLE": "IOSFODNN7",
    "Authorization: Bearer abcdefghijklmnopqrstuv01": "klmnopqrst",
    "https://bob:hunter2secret@host/x": "hunter2secret",
    "ghp_" + "a1B2" * 10: "a1B2a1B2",
    "password=S3cretPass": "S3cretPass",
    "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567": "456789abcdef",
}


@pytest.mark.parametrize("secret", SECRETS)
def test_s13_no_secret_reaches_a_report(secret, reports):
    logs = [
        fault(1, f"ValueError: cannot load {secret} now"),
        fault(1, "ValueError: x", function=secret),
        f"[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. {secret}\n",
        f"srun: error: {secret}: task 1: Killed\n[rank1]: step 1 {secret}\n",
        f"[rank1]: loss is nan {secret}\n",
        NUMBERED["watchdog"].format(n=1).replace("default_pg", secret),
    ]
    for log in logs:
        for told in reports(log):
            assert SECRETS[secret] not in re.sub(r"[\s|]", "", told)


@pytest.mark.parametrize("secret", [secret for secret in SECRETS if secret.startswith(("hf_", "ghp_"))])
def test_s13_a_secret_that_a_limit_cuts_in_two_reaches_no_report(secret, reports):
    for told in reports(fault(1, f"ValueError: {'y ' * 2030}{secret} {'z ' * 900}")):
        assert SECRETS[secret] not in re.sub(r"[\s|]", "", told)


@pytest.mark.parametrize("secret", SECRETS)
def test_s13_no_secret_in_the_path_of_a_frame_reaches_a_report(secret, reports):
    for told in reports(fault(1, "ValueError: x", file=f"/w/{secret}/a.py")):
        assert SECRETS[secret] not in re.sub(r"[\s|]", "", told)


# Forgery


def test_s15_lines_that_a_rank_prints_do_not_pin_its_failure_on_another(tmp_path, capsys):
    forged = [
        "srun: error: node-z: task 2: Killed\n",
        "2031-02-03 04:00:00 kernel: Out of memory: Killed process 77 (python) total-vm:1kB\n",
        box(2),
        "2031-02-03 04:00:00.000 Training finished successfully\n",
        "world_size=2\n" * 30,
        "9999-01-01 00:00:00 x\n0001-01-01 00:00:00 x\n",
    ]
    for text in forged:
        for rank in range(4):
            steps = "".join(f"2031-02-03 04:00:{i:02}.{rank:03} [rank{rank}]: step {i} loss 1.{i}\n" for i in range(60))
            own = "".join(f"2031-02-03 04:01:00.500 {line}" for line in fault(3).splitlines(keepends=True))
            end = {0: text, 3: own}.get(rank, "")
            (tmp_path / f"rank_{rank}.log").write_text(steps + end)
        assert cli.run(["postmortem", "--json", str(tmp_path)]) == 0
        assert json.loads(capsys.readouterr().out)["first_failure"]["ranks"] == [3]


# Cost


LINE = 8 << 10
"""Characters of a hostile line: many ms for a quadratic pattern, less than one for a linear one."""
LONG_S = 0.15
CAP = 256 << 10
"""Characters of the longest line that is masked in one piece."""
IN_LINES = "hf_" + "aB3dE5gH7j" * 4
_ONE_OF = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_SPACE": "a"}


def example(tree, times=1):
    """A text that a pattern's tree matches, as short as may be."""
    text = ""
    for operation, value in tree:
        name = str(operation)
        if name == "LITERAL":
            text += chr(value)
        elif name == "IN":
            first, what = value[0]
            text += (
                "z"
                if str(first) == "NEGATE"
                else _ONE_OF.get(str(what)) or chr(what if isinstance(what, int) else what[0])
            )
        elif name in {"ANY", "NOT_LITERAL"}:
            text += "x"
        elif name == "SUBPATTERN":
            text += example(value[3])
        elif name == "BRANCH":
            text += example(value[1][0])
        elif name in {"MAX_REPEAT", "MIN_REPEAT"}:
            text += example(value[2]) * min(max(int(value[0]), times), int(value[1]))
    return text


def repeats(tree, before=""):
    """Each repetition in a pattern's tree: the text that leads to it, and one turn of it."""
    for item in tree:
        name, value = str(item[0]), item[1]
        if name in {"MAX_REPEAT", "MIN_REPEAT"}:
            yield before, example(value[2])
            yield from repeats(value[2], before)
        elif name == "SUBPATTERN":
            yield from repeats(value[3], before)
        elif name == "BRANCH":
            for branch in value[1]:
                yield from repeats(branch, before)
        before += example([item])


def hostile_lines(pattern, keywords):
    lines = set()
    for before, turn in repeats(grammar.parse(pattern)):
        for unit, head in ((turn, before), (turn, ""), (before + turn * 40, ""), (before, "")):
            if unit:
                lines.add((head + unit * (LINE // len(unit) + 1))[:LINE])
    if not keywords:
        return lines
    return {line if any(k in line for k in keywords) else f"{line}\x01{keywords[0]}" for line in lines} | {
        f"{keyword}{char * LINE}" for keyword in keywords[:3] for char in ' 1a("'
    }


class TooSlowError(Exception):
    pass


def stop(_signal, _frame):
    raise TooSlowError


def takes_long(message, line):
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, LONG_S)
        message.match(line)
    except TooSlowError:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return False


@pytest.mark.timeout(100)
def test_s12_no_message_pattern_can_be_made_to_work_for_long():
    slow = []
    handler = signal.signal(signal.SIGVTALRM, stop)
    try:
        for message in default_lexicon().messages:
            patterns = [message.pattern, *message.unless]
            lines = sorted(set().union(*(hostile_lines(pattern, message.keywords) for pattern in patterns)))
            if any(all(takes_long(message, line) for _ in range(3)) for line in lines):  # a busy machine is slow once
                slow.append(message.id)
    finally:
        signal.signal(signal.SIGVTALRM, handler)
    assert slow == []


def test_the_last_words_of_thousands_of_ranks_are_not_held_against_each_other_one_by_one(tmp_path):
    ranks = 3000
    text = "".join(f"[rank{rank}]: shard {rank} is at step {step}\n" for step in range(3) for rank in range(ranks))
    unclosed = "".join(f'[rank{rank}]:   File "/w/t{rank}.py", line {rank}, in f\n' for rank in range(ranks))
    (tmp_path / "job.log").write_text(text + unclosed)
    began = time.process_time()
    postmortem([str(tmp_path)])
    assert time.process_time() - began < 10  # 60 s where each was compared with each


SECRETIVE = "token=" + IN_LINES + " "
COSTLY = [
    "eyJ-",
    "eyJaaaaaaaaaa.eyJ-",
    "-----BEGIN PRIVATE KEY-----",
    "ab://c:",
    "a:b://",
    "a_token",
    "a.",
    "wandb key ",
]
COSTLY += ["bearer ", "sk-", "login a password ", "--a-", "A_", "password=abcdef token=abcdefghijklmnopqrstuvw "]


@pytest.mark.parametrize("turn", COSTLY)
def test_s12_no_line_can_be_made_to_take_long_to_mask(turn):
    line = SECRETIVE + turn * (CAP // len(turn)) + "\x01 token password ://"
    began = time.process_time()
    assert IN_LINES not in safe.mask(line)
    assert time.process_time() - began < 3  # 20 s for one pattern that looked through the line from each of its places


@pytest.mark.parametrize("line", ["A" * CAP, ("A" * 40 + " ") * (CAP // 41), "A" * 40 + " " * CAP], ids=len)
def test_s12_no_line_behind_a_keys_first_can_be_made_to_take_long(line):
    began = time.process_time()
    safe.mask_lines(["-----BEGIN PRIVATE KEY-----", line + "!"])
    assert time.process_time() - began < 3
