"""Ranks that follow from something else: a process, a GPU, a local rank on a known node, a pod, an order of pids."""

import pytest
from correlate_jobs import (
    KEY,
    OOM,
    RESET,
    box,
    brief,
    c10,
    closing,
    evidence,
    failed,
    glog,
    hello,
    identified,
    kernel,
    lines,
    oom_kill,
    say,
    signal,
    source,
    steps,
    traceback,
)

from aggregator.correlate.bases import interpolate_pids, learn_bases, learn_pods
from aggregator.correlate.identity import Identity
from aggregator.correlate.learn import build_identity
from parsers.records import Known, Role

XID = "NVRM: Xid (PCI:{}): 79, pid=41210, name=python3, GPU has fallen off the bus."


def nccl_init(rank, world, host, local, bus, pid):
    text = f"ncclCommInitRank comm 0x55d0c3e{rank} rank {rank} nranks {world} cudaDev {local} nvmlDev {local}"
    return f"{host}:{pid}:{pid + 900} [{local}] NCCL INFO {text} busId {bus} commId 0x9c1ab37f2e0d4a11 - Init COMPLETE"


def peer_lost(seconds, rank):
    text = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]  remote error detected from rank: 2"
    return c10(seconds, rank, text)


def test_a_pid_in_a_kernel_line_leads_to_the_rank_of_that_process(judge):
    train = [hello(rank, 4, pid=41210 + 3 * rank) for rank in range(4)] + [steps(rank, 1, 5) for rank in range(4)]
    train += [traceback(RESET, f"[rank{rank}]: ") for rank in (0, 1, 3)]
    segfault = "python3[41216]: segfault at 8 ip 00007f2a1c0012f0 sp 00007ffd8a5e1b40 error 4 in libtorch.so[7f+5f]"
    verdict = judge({"train.log": lines(*train), "dmesg.txt": lines(kernel(7, "x: y"), kernel(7, segfault))})
    assert brief(verdict) == identified(2, "segfault")


def test_the_same_pid_on_two_hosts_is_told_apart_by_the_host(judge):
    train = [hello(rank, 4, f"node-{'ab'[rank // 2]}", pid=500 + rank % 2) for rank in range(4)]
    train += [traceback(RESET, f"[rank{rank}]: ") for rank in (0, 1, 2)]
    verdict = judge({"train.log": lines(*train), "dmesg-node-b.txt": oom_kill(7, 501)})
    assert brief(verdict) == identified(3, "host_oom")
    assert verdict.first_failure.hosts == ("node-b",)


def test_a_fault_on_a_machine_where_no_rank_ran_is_not_the_job_s(judge):
    train = [hello(rank, 4, f"node-{'ab'[rank // 2]}", pid=500 + rank) for rank in range(4)]
    train += [steps(rank, 1, 5) for rank in range(4)] + [traceback(KEY, "[rank3]: ")]
    beside = lines(kernel(-4000, XID.format("0000:5d:00")))
    files = {"train.log": lines(*train), "dmesg-node-z.txt": beside, "dmesg-node-b.txt": lines(kernel(1, "x: y"))}
    assert brief(judge(files)) == identified(3, "python_exception")
    files["dmesg-node-a.txt"] = files.pop("dmesg-node-z.txt")
    assert brief(judge(files)) != identified(3, "python_exception")


def test_a_pid_that_two_hosts_share_names_no_rank_by_itself():
    table = Identity()
    table.rank_of_pid = {("a", 500): 0, ("b", 500): 2, ("b", 501): 3}
    assert table.rank_for_pid(500, None) is None
    assert table.rank_for_pid(500, "b") == 2
    assert table.rank_for_pid(501, None) == 3


def test_a_pci_address_in_a_kernel_line_leads_to_the_rank_on_that_gpu(judge):
    buses = ("1b000", "3c000", "5d000", "9a000")
    train = [nccl_init(rank, 4, "node-b", rank, bus, 4200 + rank) for rank, bus in enumerate(buses)]
    train += [steps(rank, 1, 5) for rank in range(4)] + [peer_lost(9, rank) for rank in (0, 1, 3)]
    dmesg = lines(kernel(7, XID.format("0000:5d:00")))
    verdict = judge({"train.log": lines(*train), "dmesg-node-b.txt": dmesg})
    assert brief(verdict) == identified(2, "gpu_lost")
    assert (verdict.first_failure.hosts, verdict.first_failure.layer) == (("node-b",), "gpu")


def test_a_pci_address_that_both_hosts_have_is_told_apart_by_the_kernel_logs_host(judge):
    train = [nccl_init(r, 4, f"node-{'ab'[r // 2]}", r % 2, ("1b000", "5d000")[r % 2], 4200 + r) for r in range(4)]
    train += [peer_lost(9, rank) for rank in (0, 2, 3)]
    files = {"train.log": lines(*train), "dmesg-node-a.txt": lines(kernel(7, XID.format("0000:5d:00")))}
    assert brief(judge(files)) == identified(1, "gpu_lost")
    files["dmesg-node-b.txt"] = files.pop("dmesg-node-a.txt")
    assert brief(judge(files)) == identified(3, "gpu_lost")


# Local ranks


def test_a_local_rank_on_the_second_node_counts_from_that_nodes_first_rank(judge):
    def node(base, culprit):
        text = [hello(base + local, 8, f"node-{'ab'[base > 0]}") for local in range(4)]
        text = [f"[default{local}]:{line}" for local, line in enumerate(text)]
        errors = [(local, KEY if base + local == culprit else RESET) for local in range(4)]
        return lines(*text, *(traceback(error, f"[default{local}]:") for local, error in errors))

    files = {"node-a/torchrun.out": node(0, 6), "node-b/torchrun.out": node(4, 6)}
    assert brief(judge(files)) == identified(6, "python_exception")


def test_local_ranks_are_global_ones_on_the_only_node(judge):
    text = [traceback(KEY if local == 2 else RESET, f"[default{local}]:") for local in range(4)]
    assert brief(judge({"torchrun.out": lines(*text)})) == identified(2, "python_exception")


def test_local_ranks_of_one_of_two_nodes_are_not_global_ones(judge):
    text = ["dist_world_size=8", *(traceback(KEY if n == 2 else RESET, f"[default{n}]:") for n in range(4))]
    verdict = judge({"torchrun.out": lines(*text)})
    assert brief(verdict) == ("failed", "undetermined", (), "python_exception")


def test_the_agents_own_table_of_a_rendezvous_maps_local_ranks(judge):
    table = lines(
        glog(0, "[default] Rendezvous complete for workers. Result:", "I"), "  restart_count=0", "  group_rank=1",
        "  local_ranks=[0, 1, 2, 3]", "  global_ranks=[8, 9, 10, 11]", "  global_world_sizes=[16, 16, 16, 16]",
    )  # fmt: skip
    text = [traceback(KEY if local == 3 else RESET, f"[default{local}]:") for local in range(4)]
    assert brief(judge({"torchrun.out": lines(table, *text)})) == identified(11, "python_exception")


def test_a_base_is_what_most_lines_of_a_node_say():
    table, where = Identity(), source(host="node-b", local_rank=1)
    told = [signal(Role.SYMPTOM, rank=rank) for rank in (9, 9, 1)]
    learn_bases(evidence(where), told, table)
    assert table.base_of_scope["host node-b"] == 8


# Pods


def test_the_pods_of_a_training_operator_are_ranks(judge):
    names = ("vits-master-0", "vits-worker-0", "vits-worker-1")
    text = [f"[pod/{names[0]}/pytorch] {at_world(0, 3)}"]
    text += [traceback(KEY if name == "vits-worker-0" else RESET, f"[pod/{name}/pytorch] ") for name in names]
    assert brief(judge({"kubectl-logs.txt": lines(*text)})) == identified(1, "python_exception")


def at_world(rank, world):
    return f"INFO 2026-12-01 10:00:00,100 world_size={world} rank={rank} local_rank=0 master=vits-master-0:23456"


def pod_lines(*names, world=None):
    told = [signal(Role.ROOT, fields={"tag_pod": name}) for name in names]
    table = Identity(world_size=world)
    learn_pods(told, table)
    return table.rank_of_pod


def test_workers_are_counted_from_one_where_there_is_a_master_and_from_zero_where_there_is_none():
    assert pod_lines("x-master-0", "x-worker-0", "x-worker-1") == {"x-master-0": 0, "x-worker-0": 1, "x-worker-1": 2}
    assert pod_lines("x-worker-0", "x-worker-1") == {"x-worker-0": 0, "x-worker-1": 1}


def test_pods_of_several_processes_each_are_no_ranks():
    assert pod_lines("x-master-0", "x-worker-0", world=16) == {}


# Tasks of srun


def srun_label(culprit, world=4):
    text = [f"{rank}: {say(0, None, 'data ready')}" for rank in range(world)]
    text += [traceback(KEY if rank == culprit else RESET, f"{rank}: ") for rank in range(world)]
    return lines(*text, f"srun: error: node-b: task {culprit}: Exited with exit code 1")


def test_tasks_of_srun_are_ranks(judge):
    verdict = judge({"slurm-7.out": srun_label(3)})
    assert brief(verdict) == identified(3, "python_exception")
    assert verdict.first_failure.hosts == ("node-b",)


def test_tasks_of_srun_that_start_a_launcher_each_are_nodes(judge):
    text = []
    for task in range(2):
        text += [f"{task}: [default{n}]:{hello(4 * task + n, 8, f'node-{task}')}" for n in range(4)]
    text += [traceback(RESET, f"0: [default{n}]:") for n in range(4)]
    text += [traceback(KEY if n == 1 else RESET, f"1: [default{n}]:") for n in range(4)]
    text += ["1: " + failed(9, 1, 1, 4105), "srun: error: node-1: task 1: Exited with exit code 1"]
    verdict = judge({"slurm-7.out": lines(*text)})
    assert verdict.first_failure.ranks != (1,)
    assert brief(verdict) == identified(5, "python_exception")


def test_an_exit_of_a_task_that_is_a_launcher_is_no_rank_s(judge):
    text = [f"0: {glog(0, '[default] Starting worker group')}", "1: " + closing(5, 4100, 4101)]
    text += ["srun: error: node-b: task 1: Exited with exit code 1"]
    assert 1 not in brief(judge({"slurm-7.out": lines(*text)}))[2]


# Order of pids


def test_pids_of_a_launchers_workers_rise_with_their_local_ranks(judge):
    text = [f"[default{local}]:{say(0, None, 'ready')}" for local in range(4)]
    text += [traceback(RESET, f"[default{local}]:") for local in (0, 1, 3)]
    text += [closing(9, 4101, 4102, 4104), failed(10, -9, 2, 4103), box(10, (2, 2, -9, 4103))]
    files = {"torchrun.out": lines(*text), "dmesg.txt": oom_kill(8, 4103)}
    assert brief(judge(files)) == identified(2, "host_oom")


def test_a_worker_that_no_line_ties_to_a_rank_has_the_one_that_its_pid_leaves(judge):
    text = ["dist_world_size=4", f"[default3]:{say(0, None, 'ready')}", closing(9, 4101, 4102, 4104)]
    text += [failed(10, -9, 2, 4103)]
    verdict = judge({"torchrun.out": lines(*text)})
    assert brief(verdict) == identified(2, "killed")
    assert {row.rank for row in verdict.collateral} == {0, 1, 3}


def test_a_pid_between_two_known_ones_has_the_rank_between():
    table = Identity()
    table.rank_of_pid = {("a", 100): 8, ("a", 103): 11, ("b", 100): 0, ("b", 110): 1}
    interpolate_pids([], table)
    assert (table.rank_for_pid(101, "a"), table.rank_for_pid(102, "a")) == (9, 10)
    assert table.rank_for_pid(105, "b") is None


@pytest.mark.parametrize(("stopped", "rank"), [((102, 105), 10), ((102,), None), ((101, 102, 105), None)])
def test_as_many_processes_as_ranks_that_an_agent_stops_between_two_known_ones_are_those(stopped, rank):
    table = Identity()
    table.rank_of_pid = {("a", 100): 8, ("a", 107): 11}
    interpolate_pids([signal(Role.TEARDOWN, "te.closing", fields={"pid": str(pid)}) for pid in stopped], table)
    assert table.rank_for_pid(105, "a") == rank
    assert table.host_of_rank.get(10) == ("a" if rank else None)


@pytest.mark.parametrize(("machines", "rank"), [("1", 1), ("2", None), (None, None)])
def test_a_local_rank_is_the_global_one_where_the_program_says_that_it_runs_on_one_machine(machines, rank):
    told = [signal(Role.IDENTITY, fields={"rank": "0", "world_size": "4"}, rank=0), signal(Role.ROOT, local_rank=1)]
    told += [signal(Role.IDENTITY, fields={"machines": machines})] if machines else []
    build_identity(evidence(source()), told)
    assert told[1].rank == rank


def test_that_it_runs_on_one_machine_is_not_believed_where_two_nodes_tell_local_ranks():
    told = [
        signal(Role.IDENTITY, fields={"machines": "1", "world_size": "4"}),
        signal(Role.ROOT, local_rank=1, source=1),
    ]
    told += [signal(Role.ROOT, local_rank=0)]
    build_identity(evidence(source(0, "a.log"), source(1, "b.log")), told)
    assert told[1].rank is None


def test_addresses_of_the_ranks_tell_the_host_that_others_lost():
    sources = [source(0, "a.log"), source(1, "b.log")]
    told = [
        signal(Role.IDENTITY, "nccl.bootstrap.address", host="node-a", fields={"ip": "10.4.0.3"}),
        signal(Role.IDENTITY, "id.rank_host", rank=4, source=1, fields={"rank": "4", "host": "node-b"}),
    ]
    table = build_identity(evidence(*sources), told)
    assert table.host_of_ip == {"10.4.0.3": "node-a"}
    assert table.ranks_on("node-b.cluster.example") == [4]


@pytest.mark.parametrize("how", [Known.TAG, Known.PREFIX])
def test_what_a_line_tells_of_itself_stays(how):
    told = [signal(Role.ROOT, rank=3, rank_how=how, pid=77), signal(Role.IDENTITY, rank=1, fields={"pid": "77"})]
    build_identity(evidence(), told)
    assert (told[0].rank, told[0].rank_how) == (3, how)


def test_folders_of_two_agents_that_number_local_ranks_alike_are_four_ranks(judge):
    files = {
        f"logs/none_{node}xyz1234/attempt_0/{local}/stderr.log": lines(
            hello(base + local, 4, node), traceback(OOM if base + local == 2 else RESET)
        )
        for node, base in (("a", 0), ("b", 2))
        for local in range(2)
    }
    assert brief(judge(files)) == identified(2, "cuda_oom")
