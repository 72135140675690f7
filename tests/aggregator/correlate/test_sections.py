"""Facts that a report spreads over lines: whose section a line is in, which pod a state is of."""

import textwrap

import pytest

from aggregator.correlate.sections import join_sections
from parsers.records import Known, Role, Source, SourceKind
from parsers.triage import LogTriage


def read(text, source=0):
    triage = LogTriage(Source(source, f"{source}.log", None, SourceKind.LOG))
    triage.feed(textwrap.dedent(text).lstrip("\n").encode())
    return join_sections(triage.finish().signals)


def faults(text):
    return [(s.kind, s.rank, s.rank_how) for s in read(text) if s.role in {Role.ROOT, Role.SYMPTOM}]


COMPOSER = """
    Global rank 5 (PID 412) exited with code 1
    ----------Begin global rank 5 STDOUT----------

    ----------End global rank 5 STDOUT----------
    ----------Begin global rank 5 STDERR----------
    RuntimeError: CUDA error: an illegal memory access was encountered
    ----------End global rank 5 STDERR----------
    RuntimeError: CUDA error: device-side assert triggered
"""


def test_what_a_launcher_prints_as_one_ranks_output_is_that_ranks_and_no_more():
    assert faults(COMPOSER) == [("cuda_illegal_access", 5, Known.TAG), ("cuda_device_assert", None, Known.NONE)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("==> logs/rank_3.log <==", "==> logs/rank_4.log <=="),
        ("==> rank3/stderr.log <==", "==> rank4/stderr.log <=="),
        ("===== rank 3 stderr =====", "===== rank 4 stderr ====="),
        ("--- BEGIN output of rank 3 ---", "--- BEGIN output of rank 4 ---"),
    ],
)
def test_files_put_one_behind_the_other_are_each_its_own_ranks(first, second):
    text = f"{first}\nRuntimeError: CUDA error: unknown error\n{second}\nRuntimeError: CUDA error: invalid argument\n"
    assert [rank for _, rank, _ in faults(text)] == [3, 4]


def test_a_file_of_no_rank_ends_the_section_above_it():
    text = "==> rank3.log <==\n==> rank4.log <==\n==> launcher.log <==\nRuntimeError: CUDA error: unknown error\n"
    assert [rank for _, rank, _ in faults(text)] == [None]


def test_a_single_heading_of_a_programs_own_makes_no_section():
    assert [rank for _, rank, _ in faults("=== rank 3 ===\nRuntimeError: CUDA error: unknown error\n")] == [None]


def test_a_line_that_tells_its_rank_keeps_it_in_any_section():
    text = "== rank 3 ==\n== rank 4 ==\n[rank7]: RuntimeError: CUDA error: unknown error\n".replace("==", "====")
    assert [rank for _, rank, _ in faults(text)] == [7]


def test_a_section_does_not_reach_into_the_next_file():
    first = read("----------Begin global rank 5 STDERR----------\n")
    second = read("RuntimeError: CUDA error: unknown error\n", source=1)
    assert [s.rank for s in join_sections([*first, *second]) if s.role is Role.ROOT] == [None]


YAML = """
    apiVersion: v1
    items:
    - apiVersion: v1
      kind: Pod
      metadata:
        labels:
          name: not-the-pod
        name: train-worker-1
        ownerReferences:
        - kind: Job
          name: not-the-pod
      spec:
        containers:
        - name: pytorch
        nodeName: gpu-pool-7f2c
      status:
        containerStatuses:
        - name: pytorch
          state:
            terminated:
              exitCode: 137
              finishedAt: "2031-02-03T08:22:51Z"
              reason: OOMKilled
    - apiVersion: v1
      kind: Pod
      metadata:
        name: train-worker-2
      status:
        containerStatuses:
        - state:
            terminated:
              exitCode: 1
"""


def test_states_in_the_yaml_of_pods_are_of_the_pod_and_of_its_end():
    exits = [s for s in read(YAML) if s.role is Role.EXIT]
    assert [(s.fields["pod"], s.kind) for s in exits] == [
        ("train-worker-1", None), ("train-worker-1", "host_oom"), ("train-worker-2", None),
    ]  # fmt: skip
    assert [s.stamp is not None for s in exits] == [True, True, False]
    assert exits[0].ns == exits[1].ns


def test_the_node_of_a_pod_is_read_from_its_yaml():
    (node,) = [s for s in read(YAML) if s.signature == "k8s.node"]
    assert (node.fields["pod"], node.fields["host"]) == ("train-worker-1", "gpu-pool-7f2c")


def test_json_of_kubectl_says_the_same():
    text = """
        {
            "kind": "Pod",
            "metadata": {
                "name": "train-worker-1"
            },
            "status": {
                "reason": "OOMKilled"
            }
        }
    """
    assert [(s.fields["pod"], s.kind) for s in read(text) if s.role is Role.EXIT] == [("train-worker-1", "host_oom")]


def test_a_name_in_an_ordinary_log_is_no_pod():
    assert read("config:\n  name: resnet\n  exitCode: 1\n")[-1].fields == {"exit_code": "1"}
