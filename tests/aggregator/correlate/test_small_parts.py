"""The pure functions under the correlator."""

import pytest
from correlate_jobs import evidence, signal, source

from aggregator.correlate.evidence import ints, number
from aggregator.correlate.identity import Identity, bus_key, same_host, scope_of, stream_rank
from aggregator.correlate.narrate import ranges, says
from aggregator.correlate.phases import layer_of, location, phase_of_kind, phase_of_stack, user_frames
from aggregator.correlate.sections import drop_echoes, join_sections
from aggregator.correlate.stories import build_stories
from parsers.lineformats import KINDS, LAYERS, PHASES
from parsers.records import ExceptionInfo, Frame, Known, Role
from parsers.scan import StreamKey


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,3-5", (1, 3, 4, 5)),
        ("[1, 3]", (1, 3)),
        ("0 2", (0, 2)),
        ("7", (7,)),
        ("", ()),
        (None, ()),
        ("Unknown", ()),
        ("3-1", ()),
        ("0-99999999999", ()),
        ("1-x,4", (1, 4)),
    ],
)
def test_lists_of_ranks_are_read_in_all_their_spellings(text, numbers):
    assert ints(text) == numbers


def test_a_field_that_is_no_number_is_none():
    assert (number("12"), number("-9"), number("x"), number(None)) == (12, -9, None, None)


@pytest.mark.parametrize(
    ("numbers", "text"), [((0, 1, 2, 5), "0-2,5"), ((3,), "3"), ((), ""), ((2, 1, 1, 7, 8), "1-2,7-8")]
)
def test_ranks_are_written_as_ranges(numbers, text):
    assert ranges(numbers) == text


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("node-b", "node-b", True),
        ("node-b", "node-b.cluster.example", True),
        ("node-b.cluster.example", "node-b", True),
        ("node-b", "node-bb", False),
        ("node-b", "node-b-ib0", True),
        ("node07i", "node07", True),
        ("node-b-ib0", "node-b-ib1", False),
        ("node1", "node12", False),
        ("node-b", "node-bi", False),
        ("node-b.one.example", "node-b.two.example", True),
        ("10.4.0.7", "10.4.0.7", True),
        ("10.4.0.7", "10.5.0.7", False),
        (None, "node-b", False),
        (None, None, False),
    ],
)
def test_two_spellings_of_one_host_are_known_and_addresses_are_not_cut(left, right, same):
    assert same_host(left, right) is same


@pytest.mark.parametrize(
    ("bus", "other"),
    [("0000:5d:00.0", "5d000"), ("PCI:0000:5d:00", "5d000"), ("0000:5D:00", "5d000"), ("00000000:5D:00.0", "5d000")],
)
def test_a_pci_address_is_the_same_in_the_kernels_and_in_nccls_spelling(bus, other):
    assert bus_key(bus) == bus_key(other)


def test_different_pci_addresses_stay_different():
    buses = ["0000:5d:00.0", "0000:5e:00.0", "0001:5d:00.0", "0000:05:00.0", "0000:50:00.0", "0000:00:00.0"]
    assert len(set(map(bus_key, buses))) == len(buses)


def test_a_source_belongs_to_its_host_else_to_its_launcher_else_to_itself():
    assert scope_of(source(host="a", group="g")) == "host a"
    assert scope_of(source(group="g")) == "group g"
    assert scope_of(source(path="x.log")) == "file x.log"


def test_a_streams_rank_is_its_files_then_its_tasks_then_its_tags_then_its_local_ranks():
    table = Identity(base_of_scope={"host b": 8})
    where = source(3, host="b")
    assert stream_rank(where, StreamKey(local_rank=2), table) == 10
    assert stream_rank(where, StreamKey(task="5", local_rank=2), table) == 5
    assert stream_rank(where, StreamKey(rank=4, task="5"), table) == 5
    assert stream_rank(where, StreamKey(rank=4, local_rank=2), table) == 4
    table.rank_of_source[3] = 1
    assert stream_rank(where, StreamKey(rank=4), table) == 1
    assert stream_rank(source(4), StreamKey(local_rank=2), table) is None
    assert stream_rank(source(4), StreamKey(task="5"), Identity(tasks_are_ranks=False)) is None


# Phases and places


def stack(*frames):
    """An exception; frames are file and function, the outermost first."""
    return ExceptionInfo("E", "", tuple(Frame(file, 10 + place, name) for place, (file, name) in enumerate(frames)))


LIB = "/opt/env/lib/python3.11/site-packages"
TRAIN = ("/home/mira/train.py", "main")


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([TRAIN, (f"{LIB}/torch/_tensor.py", "backward")], "backward"),
        ([TRAIN, (f"{LIB}/torch/optim/adamw.py", "step")], "optimizer"),
        ([TRAIN, (f"{LIB}/deepspeed/runtime/engine.py", "_take_model_step")], "optimizer"),
        ([TRAIN, (f"{LIB}/torch/nn/modules/linear.py", "forward")], "forward"),
        ([TRAIN, (f"{LIB}/torch/utils/data/dataloader.py", "__next__")], "data_loading"),
        ([TRAIN, (f"{LIB}/torch/distributed/distributed_c10d.py", "all_reduce")], "communication"),
        ([TRAIN, (f"{LIB}/torch/distributed/distributed_c10d.py", "init_process_group")], "init"),
        ([TRAIN, (f"{LIB}/torch/serialization.py", "save")], "checkpoint"),
        ([TRAIN, ("/home/mira/train.py", "save_state")], "checkpoint"),
        ([TRAIN, ("/home/mira/train.py", "evaluate"), (f"{LIB}/torch/nn/modules/linear.py", "forward")], "evaluation"),
        ([TRAIN, ("/home/mira/train.py", "validate_epoch"), ("/home/mira/x.py", "y")], "evaluation"),
        ([("/home/mira/train.py", "<module>")], "init"),
        ([TRAIN], None),
        ([], None),
    ],
)
def test_a_stack_tells_what_was_being_done(frames, phase):
    assert phase_of_stack(stack(*frames)) == phase


def test_an_evaluation_outranks_what_goes_on_inside_it_unless_that_is_a_checkpoint():
    evaluating = ("/home/mira/train.py", "run_eval")
    assert phase_of_stack(stack(evaluating, (f"{LIB}/torch/_tensor.py", "backward"))) == "evaluation"
    assert phase_of_stack(stack(evaluating, (f"{LIB}/torch/serialization.py", "save"))) == "checkpoint"


def test_no_exception_tells_no_phase_and_no_place():
    assert phase_of_stack(None) is None
    assert location(None) is None
    assert location(ExceptionInfo("E", "")) is None


def test_the_place_of_a_fault_is_the_users_innermost_line():
    found = stack(TRAIN, ("/home/mira/model.py", "run"), (f"{LIB}/torch/nn/modules/linear.py", "forward"))
    assert location(found) == "/home/mira/model.py:11"
    assert [frame.file for frame in user_frames(found.frames)] == ["/home/mira/train.py", "/home/mira/model.py"]
    assert location(stack((f"{LIB}/torch/cuda/__init__.py", "_lazy_init"))) == f"{LIB}/torch/cuda/__init__.py:10"


def test_every_kind_has_a_layer_and_words_and_implies_only_known_phases():
    for kind in KINDS:
        assert layer_of(kind, None) in LAYERS
        assert "_" not in says(kind)
        assert phase_of_kind(kind) in PHASES | {None}


def test_the_layer_that_a_message_tells_outranks_that_of_its_kind():
    assert layer_of("nccl_error", "network") == "network"
    assert layer_of("nccl_error", None) == "unknown"


# Sections


def described(*rows):
    return [
        signal(role, signature, line=line, offset=100 * line, text=signature, fields=dict(fields))
        for line, (role, signature, fields) in enumerate(rows, 1)
    ]


def test_lines_of_a_pods_description_belong_to_the_pod_above_them():
    rows = described(
        (Role.IDENTITY, "k8s.pod", {"pod": "x-master-0"}),
        (Role.EXIT, "k8s.exit_code", {"exit_code": "1"}),
        (Role.IDENTITY, "k8s.pod", {"pod": "x-worker-0"}),
        (Role.EXIT, "k8s.oom_killed", {"reason": "OOMKilled"}),
        (Role.CONTEXT, "k8s.container_time", {"finished": "Thu, 13 Jun 2024 08:22:51 +0000"}),
    )
    joined = join_sections(rows)
    assert [row.fields.get("pod") for row in joined] == ["x-master-0"] * 2 + ["x-worker-0"] * 3
    assert joined[1].stamp is None
    assert joined[3].ns == 1_718_266_971 * 10**9


def test_a_pod_does_not_reach_into_the_next_file():
    rows = described((Role.IDENTITY, "k8s.pod", {"pod": "x"}), (Role.EXIT, "k8s.exit_code", {"exit_code": "1"}))
    rows[1].source = 1
    assert "pod" not in join_sections(rows)[1].fields


def test_a_line_that_completes_an_exit_report_is_merged_into_it():
    rows = described(
        (Role.EXIT, "hydra.process", {"rank": "3", "pid": "4102"}), (Role.EXIT, "hydra.status", {"signal": "9"})
    )
    (joined,) = join_sections(rows)
    assert joined.fields == {"rank": "3", "pid": "4102", "signal": "9"}


def test_a_line_of_another_block_or_of_another_process_completes_nothing():
    far = described((Role.EXIT, "hydra.process", {"rank": "3"}), (Role.EXIT, "hydra.status", {"signal": "9"}))
    far[1].line = 40
    assert len(join_sections(far)) == 2
    other = described((Role.EXIT, "mpi.signalled", {"rank": "3"}), (Role.EXIT, "mpi.exited", {"rank": "5"}))
    assert len(join_sections(other)) == 2


def test_a_fault_of_no_rank_is_dropped_where_another_file_has_it_with_its_rank():
    owned = signal(Role.ROOT, "x", source=0, rank=2, text="KeyError: 1")
    copy = signal(Role.ROOT, "x", source=1, text="KeyError: 1")
    beside = signal(Role.ROOT, "x", source=0, text="KeyError: 1")
    other = signal(Role.ROOT, "x", source=1, text="KeyError: 2")
    assert drop_echoes([owned, copy, beside, other]) == [owned, beside, other]


# Stories


def test_ranks_that_only_the_world_size_tells_have_a_story_too():
    stories, homeless = build_stories(evidence(), [signal(Role.ROOT, rank=1)], [], Identity(world_size=3))
    assert sorted(stories) == [0, 1, 2]
    assert (len(stories[1].roots), stories[0].lines, homeless) == (1, 0, [])


def test_a_huge_world_size_is_a_misread_number():
    stories, _ = build_stories(evidence(), [], [], Identity(world_size=1 << 30))
    assert stories == {}


def test_an_abort_after_another_fault_of_the_rank_is_its_end_and_not_its_fault():
    wait = signal(Role.SYMPTOM, "w", rank=1, offset=10, kind="collective_timeout", rank_how=Known.TAG)
    abort = signal(Role.EITHER, "a", rank=1, offset=20, kind="abort")
    stories, _ = build_stories(evidence(), [wait, abort], [], Identity())
    assert (stories[1].eithers, stories[1].teardown) == ([], [abort])
    own = signal(Role.ROOT, "b", rank=1, offset=20, kind="abort", fields={"own": "1"})
    stories, _ = build_stories(evidence(), [wait, own], [], Identity())
    assert stories[1].roots == [own]
