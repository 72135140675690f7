"""Host lists as Slurm writes them."""

import time

import pytest

from aggregator.slurm.hostlist import expand


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node-1", ["node-1"]),
        ("node-[1-2]", ["node-1", "node-2"]),
        ("node[01-03,07],gpu-a03", ["node01", "node02", "node03", "node07", "gpu-a03"]),
        ("rack[1-2]n[08-10]", ["rack1n08", "rack1n09", "rack1n10", "rack2n08", "rack2n09", "rack2n10"]),
        ("n[8-11].cluster.example", [f"n{n}.cluster.example" for n in range(8, 12)]),
        ("n[1,1]", ["n1", "n1"]),
        ("tx-b,tx-a", ["tx-b", "tx-a"]),
    ],
)
def test_a_list_is_expanded_in_its_own_order(text, hosts):
    assert expand(text) == hosts


@pytest.mark.parametrize(
    "text",
    ["", ",", "n[1-2", "n]1[", "n[]", "n[2-1]", "n[a-b]", "n[1-]", "n[[1]]", "a,,b", "a,", "a b", "$(id)", "../x",
     "n[1-2]\n", "(null)", "n[1--2]", "é"],
)  # fmt: skip
def test_what_is_no_host_list_names_no_host(text):
    assert expand(text) == []


def test_a_list_of_more_hosts_than_allowed_names_none_and_costs_nothing():
    started = time.monotonic()
    assert expand("n[0-9999999999]") == []
    assert expand("n" + "[0-9]" * 20) == []
    assert expand("n[1-4]", limit=3) == []
    assert expand(",".join(["n"] * 70_000)) == []
    assert expand("n[" + "0-9999999999," * 50_000 + "1]") == []
    assert expand("a" * 500_000 + "[") == []
    assert time.monotonic() - started < 5


def test_a_list_of_as_many_hosts_as_allowed_is_whole():
    assert len(expand("n[0-65535]")) == 65536
    assert expand("n[1-4]", limit=4) == ["n1", "n2", "n3", "n4"]
