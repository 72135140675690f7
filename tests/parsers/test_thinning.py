from parsers.records import Role, Source, SourceKind
from parsers.triage import LogTriage

SOURCE = Source(0, "job.log", None, SourceKind.LOG)
CHANNEL = "node-1:{pid}:99 [3] NCCL INFO Channel {channel:02}/0 : 3[3] -> {peer}[4] via P2P/CUMEM/read\n"


def identities(text):
    triage = LogTriage(SOURCE)
    triage.feed(text.encode())
    return [signal for signal in triage.finish().signals if signal.role is Role.IDENTITY]


def test_what_a_process_tells_of_itself_again_counts_once():
    told = identities("".join(CHANNEL.format(pid=20, channel=n, peer=4 + n % 2) for n in range(32)))
    assert [(signal.line, signal.fields["dst_rank"]) for signal in told] == [(1, "4"), (2, "5")]


def test_the_next_process_of_a_rank_introduces_itself_anew():
    told = identities("".join(CHANNEL.format(pid=pid, channel=n, peer=4) for pid in (20, 21) for n in range(8)))
    assert [(signal.line, signal.pid) for signal in told] == [(1, 20), (9, 21)]


def test_a_line_without_a_process_may_be_another_one_and_stays():
    assert len(identities("rank 3 of 8 on node-1\n" * 3)) == 3
