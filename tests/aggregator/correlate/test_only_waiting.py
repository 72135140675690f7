"""Where all that speak only waited or lost their peers, the host is told where something leaves only one."""

import pytest
from correlate_jobs import GLOO_WAIT, RESET, at, box, c10, glog, hello, lines, say, steps, traceback

JOIN = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"
UNNAMED = (
    "[W socket.cpp:663] [c10d] The IPv4 network addresses of (head.int, 29400) cannot be retrieved (gai error: -2 - "
    "Name or service not known)."
)
REMOTE = (
    "[Rank {}] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was "
    "a network error, NCCL version 2.21.5"
)


def told(verdict):
    failure = verdict.first_failure
    return failure.status, failure.kind, failure.hosts


def nodes(*unnamed):
    """Agents of four nodes that did not find together; some could not look up the first one's name."""
    return {f"node-{node}.log": lines(*([UNNAMED] * 3 if node in unnamed else []), traceback(JOIN)) for node in "abcd"}


def test_the_one_node_that_tells_why_it_could_not_join_is_named(judge):
    verdict = judge(nodes("d"))
    assert told(verdict) == ("undetermined", "rendezvous_failure", ("node-d",))
    assert verdict.first_failure.layer == "network"
    assert verdict.first_failure.evidence[0].file == "node-d.log"


@pytest.mark.parametrize("unnamed", ["", "cd"])
def test_no_node_is_named_where_none_or_several_tell_why(judge, unnamed):
    assert told(judge(nodes(*unnamed))) == ("undetermined", "rendezvous_failure", ())


def lost(*peers):
    """Ranks of one node that each lost a connection to a peer."""
    text = [hello(rank, 8) for rank in range(4)]
    for rank, peer in enumerate(peers):
        closed = f"[rank{rank}]: socketProgress: Connection closed by remote peer {peer}<4000{rank}>"
        text += [c10(20, rank, REMOTE.format(rank)), closed]
    return {"node-a.out": lines(*text)}


def test_the_host_that_all_lost_and_that_left_no_log_is_named(judge):
    assert told(judge(lost(*["node-b"] * 4)))[2] == ("node-b",)


@pytest.mark.parametrize(
    "peers", [("node-b", "node-b", "node-c", "node-b"), ("node-a",) * 4, ("10.1.0.7",) * 4],
    ids=["two hosts", "their own", "an address of nobody"],
)  # fmt: skip
def test_a_host_that_not_all_lost_or_that_speaks_itself_is_not(judge, peers):
    assert told(judge(lost(*peers)))[2] == ("node-a",)


def cut(*down, when=12):
    """Three hosts of two ranks; all lose their peers or wait, and the kernels of some tell of a link that went down."""
    files = {}
    for number, host in enumerate(("eth-a", "eth-b", "eth-c")):
        for rank in (2 * number, 2 * number + 1):
            error = GLOO_WAIT if host == "eth-b" else RESET
            text = [f"{at(0)} | {host} | rank {rank} | start", steps(rank, 1, 5), traceback(error, f"[rank{rank}]: ")]
            files[f"{host}/rank{rank}.log"] = lines(*text)
        if host in down:
            stamp = f"Dec 01 10:00:{when:02d}" if when >= 0 else "Nov 30 02:00:00"
            files[f"{host}/kern.txt"] = lines(
                f"{stamp} {host} kernel: ixgbe 0000:3b:00.0 eno1: NIC Link is Down",
                f"{stamp} {host} systemd-networkd[911]: eno1: Lost carrier",
            )
    return files


def test_a_link_that_went_down_before_peers_were_lost_names_its_host(judge):
    verdict = judge(cut("eth-b", when=4))
    assert told(verdict) == ("undetermined", "network_error", ("eth-b",))
    assert verdict.first_failure.evidence[0].file == "eth-b/kern.txt"
    assert verdict.first_failure.time is not None


@pytest.mark.parametrize("files", [cut("eth-b", "eth-c", when=4), cut("eth-b", when=-1)], ids=["two", "a day before"])
def test_links_of_several_hosts_or_of_long_ago_name_none(judge, files):
    assert told(judge(files))[2] == ()


def test_a_link_that_is_down_is_no_failure_of_a_job_that_goes_on(judge):
    down = {"eth-b/kern.txt": "Dec 01 10:00:02 eth-b kernel: ixgbe 0000:3b:00.0 eno1: NIC Link is Down\n"}
    files = {f"eth-{host}/rank{rank}.log": lines(hello(rank, 2), steps(rank, 1, 9)) for rank, host in enumerate("ab")}
    assert judge({**files, **down}).first_failure is None


def test_an_adapter_of_infiniband_is_one_of_the_network_where_nobody_tells_of_infiniband(judge):
    dmesg = "[Tue Dec  1 10:00:04 2026] mlx5_core 0000:17:00.0 enp23s0f0np0: Link down\n"
    assert told(judge({**cut(), "eth-b/dmesg.txt": dmesg})) == ("undetermined", "network_error", ("eth-b",))


def test_keys_that_a_terminal_shows_hide_no_stamp(judge):
    signal = glog(40, "Received Signals.SIGINT death signal, shutting down workers")
    verdict = judge(
        {"term.log": lines(hello(0, 2), hello(1, 2), "^C" + signal, box(41, (0, 0, -2, 4100), (1, 1, -2, 4101)))}
    )
    assert str(verdict.outcome) == "cancelled"
    assert verdict.first_failure.time is not None


@pytest.mark.parametrize(
    "last",
    [
        say(10, 1, "training done"),
        c10(10, 1, "Warning: WARNING: destroy_process_group() was not called before program exit", "W"),
    ],
)
def test_who_was_done_while_others_waited_was_told_to_do_less(judge, last):
    files = {f"rank_{rank}.log": lines(hello(rank, 3), steps(rank, 1, 9)) for rank in range(3)}
    for rank in (0, 2):
        files[f"rank_{rank}.log"] += traceback(GLOO_WAIT, f"[rank{rank}]: ")
    files["rank_1.log"] += lines(last)
    failure = judge(files).first_failure
    assert (failure.ranks, failure.layer) == ((1,), "software")
