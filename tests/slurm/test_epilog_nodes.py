"""Jobs of several nodes: who reports, and what the nodes tell each other."""

import threading

import pytest
from epilog_runs import FAULT, HEALTHY, IS_ROOT

as_root = pytest.mark.skipif(not IS_ROOT, reason="only what root has written is evidence: needs root")


class TestSeveralNodes:
    NODES = "node-[1-3]"

    def test_of_two_nodes_that_end_at_once_the_first_reports(self, node):
        node.write("slurm-123.out", HEALTHY)
        told = {"SLURM_NODELIST": self.NODES, "SLURM_JOB_EXIT_CODE2": "0:0"}
        ended = {}
        threads = [
            threading.Thread(target=lambda name=name: ended.update({name: node.epilog(SLURMD_NODENAME=name, **told)}))
            for name in ("node-2", "node-1")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "completed" in ended["node-1"].said
        assert ended["node-2"].said == ""
        assert {path.name for path in node.reports.iterdir()} == {"denpex-123.claim"}

    def test_only_the_first_one_reports(self, node):
        node.write("slurm-123.out", FAULT)
        quiet = node.epilog(SLURM_NODELIST=self.NODES, SLURMD_NODENAME="node-3")
        assert (quiet.code, quiet.said) == (0, "")
        assert node.written() == (b"", set())
        assert "rank 1" in node.epilog(SLURM_NODELIST=self.NODES).said

    def test_the_second_one_sees_that_the_first_is_at_it(self, node):
        node.write("slurm-123.out", FAULT)
        (node.reports / "denpex-123.claim").touch()
        quiet = node.epilog(SLURM_NODELIST=self.NODES, SLURMD_NODENAME="node-2")
        assert (quiet.code, quiet.said) == (0, "")
        assert quiet.seconds < 3

    def test_the_second_one_reports_if_the_first_gives_no_sign(self, node):
        node.write("slurm-123.out", FAULT)
        assert "rank 1" in node.epilog(SLURM_NODELIST=self.NODES, SLURMD_NODENAME="node-2").said

    def test_a_lost_first_node_is_told_where_the_logs_just_end(self, node):
        node.write("slurm-123.out", "0: step 1\n0: step 2\n")
        told = {"SLURM_NODELIST": self.NODES, "SLURMD_NODENAME": "node-2", "SLURM_JOB_EXIT_CODE2": "0:0"}
        ended = node.epilog(**told)
        assert "its first node node-1 ran no epilog: lost?" in ended.said
        assert "node-1" in (node.reports / "denpex-123.txt").read_text()
        assert node.verdict()["outcome"] == "unknown"

    @as_root
    def test_the_kernels_of_the_other_nodes_are_evidence(self, node):
        node.write("slurm-123.out", "0: step 1\n1: step 1\nsrun: error: node-2: task 1: Killed\n")
        (node.reports / "denpex-123.kernel.node-2.log").write_text(
            "2026-12-02T06:41:30.120000Z node-2 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
            "mems_allowed=0,oom_memcg=/slurm/uid_65534/job_123,task_memcg=/slurm/uid_65534/job_123/step_0/task_1,"
            "task=python,pid=4711,uid=65534\n2026-12-02T06:41:30.120001Z node-2 kernel: Memory cgroup out of "
            "memory: Killed process 4711 (python) total-vm:309104kB, anon-rss:293632kB, file-rss:5596kB, "
            "shmem-rss:0kB, UID:65534 pgtables:640kB oom_score_adj:0\n"
        )
        ended = node.epilog(SLURM_NODELIST="node-[1-2]")
        assert "host out of memory" in ended.said
        assert "kernel log of node-2" in (node.home / "denpex-123.txt").read_text()

    @as_root
    def test_only_the_leader_of_a_heterogeneous_job_reports(self, node):
        node.write("slurm-123.out", FAULT)
        assert node.epilog(SLURM_JOB_ID="124", SLURM_JOBID="124", SLURM_HET_JOB_ID="123").said == ""
        assert "rank 1" in node.epilog(SLURM_HET_JOB_ID="123").said


XID = "2026-12-02T06:41:30.120000Z {} kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid=41210, GPU has fallen off the bus."


@as_root
class TestExcludedNodes:
    def judge(self, node, nodes="node-[1-2]", names=("node-2",)):
        node.config(f'exclude_file = "{node.reports}/exclude"')
        node.write("slurm-123.out", "0: step 1\n1: step 1\nsrun: error: node-2: task 1: Killed\n")
        for name in names:
            (node.reports / f"denpex-123.kernel.{name}.log").write_text(XID.format(name) + "\n")
        ended = node.epilog(SLURM_NODELIST=nodes)
        exclude = node.reports / "exclude"
        return ended, exclude.read_text() if exclude.exists() else ""

    def test_a_node_whose_own_kernel_tells_of_broken_hardware_is_listed_once(self, node):
        _, text = self.judge(node)
        _, again = self.judge(node)
        assert text == again
        assert text.startswith("node-2 # 20")
        assert "job 123 gpu_lost: NVRM: Xid (PCI:0000:5d:00): 79" in text

    def test_a_log_is_no_proof(self, node):
        node.write("123/dmesg-node-2.txt", XID.format("node-2") + "\n")
        _, text = self.judge(node, names=())
        assert text == ""

    def test_a_node_that_is_not_the_jobs_is_not_listed(self, node):
        _, text = self.judge(node, nodes="node-[1,3]")
        assert text == ""
