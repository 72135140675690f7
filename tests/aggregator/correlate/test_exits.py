"""How processes ended, as launchers tell it, and what an end proves about its rank."""

import pytest
from correlate_jobs import (
    FULL,
    KEY,
    RESET,
    box,
    brief,
    cancelled,
    closing,
    evidence,
    failed,
    hello,
    identified,
    lines,
    oom_kill,
    signal,
    source,
    steps,
    traceback,
    watchdog,
)

from aggregator.correlate.exits import Ending, read_exits, signal_name
from aggregator.correlate.identity import Identity
from parsers.records import Role


def read(*, reports_count_ranks=True, signature="test.exit", kind=None, rank=None, **fields):
    reports = [signal(Role.EXIT, signature, rank=rank, kind=kind, fields=fields)]
    return read_exits(evidence(source(host="node-a")), reports, Identity(reports_count_ranks=reports_count_ranks))


@pytest.mark.parametrize(
    ("fields", "ending", "told", "kind"),
    [
        ({"exit_code": "0"}, Ending.CLEAN, "exit code 0", "unknown"),
        ({"exit_code": "1"}, Ending.ERROR, "exit code 1", "unknown"),
        ({"exit_code": "200"}, Ending.ERROR, "exit code 200", "unknown"),
        ({"exit_code": "-9"}, Ending.KILLED, "SIGKILL", "killed"),
        ({"exit_code": "137"}, Ending.KILLED, "SIGKILL", "killed"),
        ({"exit_code": "-11"}, Ending.CRASH, "SIGSEGV", "segfault"),
        ({"exit_code": "139"}, Ending.CRASH, "SIGSEGV", "segfault"),
        ({"exit_code": "135"}, Ending.CRASH, "SIGBUS", "bus_error"),
        ({"exit_code": "-6"}, Ending.CRASH, "SIGABRT", "abort"),
        ({"exit_code": "-15"}, Ending.STOPPED, "SIGTERM", "killed"),
        ({"exit_code": "143"}, Ending.STOPPED, "SIGTERM", "killed"),
        ({"exit_code": "-77"}, Ending.STOPPED, "signal 77", "killed"),
        ({"exit_code": "1", "signal": "9"}, Ending.KILLED, "SIGKILL", "killed"),
        ({"signal": "SIGSEGV"}, Ending.CRASH, "SIGSEGV", "segfault"),
        ({"signal": "Signals.SIGTERM"}, Ending.STOPPED, "SIGTERM", "killed"),
        ({"signal": "Segmentation fault (core dumped)"}, Ending.CRASH, "SIGSEGV", "segfault"),
        ({"signal": "Bus error"}, Ending.CRASH, "SIGBUS", "bus_error"),
        ({"signal": "Terminated"}, Ending.STOPPED, "SIGTERM", "killed"),
        ({"oom": "1", "exit_code": "1"}, Ending.OOM, "killed by the memory limit", "host_oom"),
    ],
)
def test_an_exit_code_or_a_signal_says_how_a_process_ended(fields, ending, told, kind):
    (found,) = read(rank=3, **fields)
    assert (found.rank, found.ending, found.told, found.kind) == (3, ending, told, kind)


def test_a_signal_without_a_name_is_told_by_its_number():
    assert (signal_name(9), signal_name(77)) == ("SIGKILL", "signal 77")


def test_a_report_that_tells_neither_end_nor_rank_is_no_exit():
    assert read() == []
    assert read(exit_code="one", signal="SIGNOTHING") == []


def test_a_report_of_several_tasks_is_one_exit_each():
    found = read(tasks="0-2,7", exit_code="1")
    assert [item.rank for item in found] == [0, 1, 2, 7]
    assert [item.rank for item in read(reports_count_ranks=False, tasks="0-2,7", exit_code="1")] == [None]


def test_the_host_of_an_exit_is_the_one_it_names_else_that_of_its_file():
    assert read(rank=1, exit_code="1", host="node-b")[0].host == "node-b"
    assert read(rank=1, exit_code="1")[0].host == "node-a"


# What ends prove


def torchrun(code, *, kernel=False, extra=""):
    """Rank 2 of 4 ends with `code`, without a word of its own but `extra`; the agent then stops the others."""
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 5) for rank in range(4)]
    text += [extra, closing(9, 4100, 4101, 4103), failed(10, code, 2, 4102), box(10, (2, 2, code, 4102))]
    files = {"train.log": lines(*text)}
    if kernel:
        files["dmesg.txt"] = oom_kill(8, 4102)
    return files


def test_a_kill_without_a_record_of_its_sender_is_killed(judge):
    verdict = judge(torchrun(-9))
    assert brief(verdict) == identified(2, "killed")
    assert verdict.first_failure.layer == "unknown"
    assert verdict.first_failure.confidence < 0.95


def test_a_kill_that_the_kernel_records_is_the_hosts_memory(judge):
    verdict = judge(torchrun(-9, kernel=True))
    assert brief(verdict) == identified(2, "host_oom")
    assert {item.file for item in verdict.first_failure.evidence} == {"dmesg.txt", "train.log"}


def test_a_kill_of_an_unknown_pid_is_joined_to_the_rank_that_was_killed(judge):
    files = torchrun(-9)
    files["dmesg.txt"] = oom_kill(8, 99999)
    assert brief(judge(files)) == identified(2, "host_oom")


@pytest.mark.parametrize(("code", "kind"), [(-11, "segfault"), (-7, "bus_error"), (-6, "abort")])
def test_a_crash_without_a_word_is_a_fault_of_its_own(judge, code, kind):
    assert brief(judge(torchrun(code))) == identified(2, kind)


def test_an_abort_after_the_ranks_own_watchdog_follows_from_what_it_waited_for(judge):
    text = [hello(rank, 4) for rank in range(4)]
    text += [lines(steps(rank, 1, 5), watchdog(610, rank)) for rank in (0, 2, 3)] + [steps(1, 1, 4)]
    text += [closing(612, 4101), failed(613, -6, 0, 4100), box(613, (0, 0, -6, 4100), (2, 2, -6, 4102))]
    verdict = judge({"train.log": lines(*text)})
    assert brief(verdict) == identified(1, "collective_timeout")


def test_an_abort_without_a_word_is_a_watchdogs_where_a_rank_tells_of_what_no_peer_can_cause(judge):
    gone = "socketProgress: Connection closed by remote peer node-a<41233>"
    text = [*(hello(rank, 6) for rank in range(6)), *(steps(rank, 1, 5) for rank in range(6))]
    text += [traceback(FULL.format("x.pt"), "[rank1]: "), *(f"[rank{rank}]: {gone}" for rank in (0, 2, 3, 4))]
    aborted = "srun: error: node-a: task 5: Aborted (core dumped)"
    assert brief(judge({"train.log": lines(*text, aborted)})) == identified(1, "disk_full")
    alone = [line for line in text if gone not in line]
    assert brief(judge({"train.log": lines(*alone, aborted)}))[1:3] == ("ambiguous", (1, 5))


def test_a_rank_that_alone_ended_by_sigterm_was_stopped_from_outside_first(judge):
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 5) for rank in range(4)]
    text += [closing(9, 4100, 4101, 4102), failed(10, -15, 3, 4103), box(10, (3, 3, -15, 4103))]
    assert brief(judge({"train.log": lines(*text)})) == identified(3, "killed")


def test_ranks_that_the_launcher_stopped_are_no_suspects(judge):
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 5) for rank in range(4)]
    text += [traceback(KEY, "[rank1]: "), closing(9, 4100, 4102, 4103), failed(10, 1, 1, 4101)]
    text += [box(10, (1, 1, 1, 4101), (0, 0, -15, 4100), (2, 2, -15, 4102), (3, 3, -9, 4103))]
    verdict = judge({"train.log": lines(*text)})
    assert brief(verdict) == identified(1, "python_exception")
    assert {row.rank: row.kind for row in verdict.collateral} == dict.fromkeys((0, 2, 3), "killed")


def test_the_box_of_a_second_node_does_not_hide_the_fault_on_the_first(judge):
    files = {
        f"node-{name}/torchrun.out": lines(
            *(hello(base + n, 4, f"node-{name}", 4100 + n) for n in range(2)),
            *(traceback(KEY if base + n == 1 else RESET, f"[rank{base + n}]: ") for n in range(2)),
            box(9 + base, (base, 0, 1, 4100), (base + 1, 1, 1, 4101), host=f"node-{name}"),
        )
        for name, base in (("a", 0), ("b", 2))
    }
    assert brief(judge(files)) == identified(1, "python_exception")


def test_the_line_of_deepspeed_that_names_the_last_started_process_blames_nobody(judge):
    text = [hello(rank, 4) for rank in range(4)] + [
        traceback(KEY if r == 1 else RESET, f"[rank{r}]: ") for r in range(4)
    ]
    text += ["Killing subprocess 4100", "Killing subprocess 4101", "Killing subprocess 4102", "Killing subprocess 4103"]
    text += ["['/usr/bin/python3', '-u', 'train.py', '--local_rank=3'] exits with return code = 1"]
    assert brief(judge({"train.log": lines(*text)})) == identified(1, "python_exception")


def test_the_line_of_deepspeed_alone_leaves_the_rank_open(judge):
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 4) for rank in range(4)]
    text += ["Killing subprocess 4100", "Killing subprocess 4101", "Killing subprocess 4102", "Killing subprocess 4103"]
    text += ["['/usr/bin/python3', '-u', 'train.py', '--local_rank=3'] exits with return code = -9"]
    verdict = judge({"train.log": lines(*text)})
    assert verdict.outcome == "failed"
    assert brief(verdict)[2] != (3,)


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        ("mpirun noticed that process rank 2 with PID 4102 on node node-a exited on signal 11 (Segmentation fault).",
         "segfault"),
        ("mpirun noticed that process rank 2 with PID 4102 on node node-a exited on signal 9 (Killed).", "killed"),
        ("Process 2 exit with status code 139.", "segfault"),
        ("srun: error: node-a: task 2: Segmentation fault (core dumped)", "segfault"),
        ("srun: error: node-a: task 2: Out Of Memory", "host_oom"),
        ("srun: error: node-a: task 2: Bus error (core dumped)", "bus_error"),
        ("srun: error: node-a: task 2: Killed", "killed"),
        ("Global rank 2 (PID 4102) exited with code -11", "segfault"),
        ("Rank 2 crashed with exit code -9.", "killed"),
    ],
)  # fmt: skip
def test_each_launchers_report_of_a_crash_names_its_rank(judge, report, kind):
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 4) for rank in range(4)]
    assert brief(judge({"train.log": lines(*text, report)})) == identified(2, kind)


def test_two_lines_of_one_closing_block_are_one_report(judge):
    block = lines(
        "-" * 75, "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   RANK 2 PID 4102 RUNNING AT node-a",
        "=   KILLED BY SIGNAL: 9 (Killed)",
    )  # fmt: skip
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 4) for rank in range(4)]
    assert brief(judge({"train.log": lines(*text, block)})) == identified(2, "killed")


def test_tasks_are_reported_in_the_order_of_their_ends(judge):
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 4) for rank in range(4)]
    text += ["srun: error: node-a: task 3: Exited with exit code 1", cancelled(9)]
    text += ["srun: error: node-a: tasks 0-2: Exited with exit code 1"]
    assert brief(judge({"slurm-7.out": lines(*text)}))[:3] == ("failed", "identified", (3,))


def test_tasks_that_one_line_reports_together_are_not_ordered(judge):
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 4) for rank in range(4)]
    text += ["srun: error: node-a: tasks 1-2: Exited with exit code 1"]
    outcome, how, ranks, _ = brief(judge({"slurm-7.out": lines(*text)}))
    assert (outcome, how, ranks) == ("failed", "ambiguous", (1, 2))


def test_a_shell_tells_in_the_user_s_language_which_of_its_processes_crashed(judge):
    lost = (
        "[rank{0}]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
    )
    files = {f"rang{n}.log": "Schritt 1\n" + (lost.format(n) + "\n" if n in {0, 2} else "") for n in range(4)}
    files["start.out"] = (
        "./start.sh: Zeile 18: 22841 Speicherzugriffsfehler  (Speicherabzug geschrieben) RANK=3 python train.py\n"
    )
    assert brief(judge(files)) == identified(3, "segfault")
    del files["rang1.log"], files["rang3.log"], files["start.out"]
    assert brief(judge(files))[1] == "undetermined"  # rank 1 is missing, but who knows which others are


def test_of_processes_that_were_all_killed_at_once_none_was_the_first(judge):
    """The agent looks at them in the order of their local ranks: its root cause is the first in that order."""
    text = [*(hello(rank, 4) for rank in range(4)), *(steps(rank, 1, 8) for rank in range(4))]
    text += [failed(10, -9, 0, 4100), box(10, *((rank, rank, -9, 4100 + rank) for rank in range(4)))]
    assert brief(judge({"train.log": lines(*text)})) == ("failed", "ambiguous", (0, 1, 2, 3), "killed")


def test_one_killed_process_beside_others_that_failed_is_the_first_that_is_reported(judge):
    text = [*(hello(rank, 4) for rank in range(4)), *(steps(rank, 1, 8) for rank in range(4))]
    text += [closing(9, 4100, 4102, 4103), failed(10, -9, 1, 4101), box(10, (1, 1, -9, 4101))]
    assert brief(judge({"train.log": lines(*text)})) == identified(1, "killed")
