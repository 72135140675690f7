"""What a rank was doing, on which host and when, as its messages, its source lines and its host's kernel tell it."""

import pytest

from aggregator.correlate.phases import phase_of_code
from aggregator.pipeline import postmortem
from aggregator.verdict import iso_time

RAISED = """\
Traceback (most recent call last):
  File "/job/run.py", line 91, in <module>
    main()
  File "/job/run.py", line 40, in main
    {}
{}
"""
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
HDF5 = (
    "OSError: [Errno {}] Can't write data (file write failed: time = Mon May  4 11:12:13 2026, filename = '/s/w.h5', "
    "file descriptor = 9, errno = {}, error message = '{}', buf = 0x5f0, total write size = 4096)"
)


def failure_of(root, **files):
    for name, text in files.items():
        (root / name).with_suffix(".log").write_text(text)
    return postmortem([str(root)]).first_failure


def steps(count=4, stamp="[2026-05-04 11:10:0{}] "):
    return "".join(f"{stamp.format(step)}step {step} loss 2.1\n" for step in range(1, 1 + count))


@pytest.mark.parametrize(
    ("errno", "message", "kind"),
    [
        (5, "Input/output error", "storage_io"),
        (28, "No space left on device", "disk_full"),
        (30, "Read-only file system", "storage_io"),
        (116, "Stale file handle", "storage_io"),
        (122, "Disk quota exceeded", "disk_full"),
    ],
)
def test_the_errno_tells_why_hdf5_could_not_write_and_the_message_tells_when(tmp_path, errno, message, kind):
    sweeps = "".join(f"sweep {sweep} energy -1.{sweep}\n" for sweep in range(3))
    text = sweeps + RAISED.format('h5["walkers"][...] = w', HDF5.format(errno, errno, message))
    failure = failure_of(tmp_path, rank0=sweeps, rank1=text)
    assert (failure.ranks, failure.kind, failure.phase) == ((1,), kind, "unknown")
    assert iso_time(failure.time) == "2026-05-04T11:12:13Z"


@pytest.mark.parametrize(("function", "phase"), [("train", "forward"), ("load", "init")])
def test_what_a_librarys_training_loop_raises_is_no_failure_of_the_start(tmp_path, function, phase):
    library = f'  File "/usr/lib/python3/dist-packages/habana/trainer.py", line 561, in {function}\n    work()\n'
    text = RAISED.replace('  File "/job/run.py", line 40, in main\n    {}\n', library).format(OOM)
    bar = "".join(f"  7%|7         | {n}/1618 [28:21<5:32:59, 13.40s/it]\n" for n in range(120, 128))
    tagged = "".join(f"[rank1]: {line}\n" for line in text.splitlines())
    assert failure_of(tmp_path, job=bar + tagged).phase == phase


def test_a_place_inside_compiled_library_code_is_that_of_its_caller(tmp_path):
    call = 'h5["walkers"][...] = w\n  File "h5py/_objects.pyx", line 56, in h5py._objects.with_phil.wrapper'
    failure = failure_of(tmp_path, rank0=RAISED.format(call, HDF5.format(5, 5, "Input/output error")))
    assert failure.location == "/job/run.py:40"


@pytest.mark.parametrize(
    ("code", "phase"),
    [
        ("metrics = p_eval_step(state, batch)", "evaluation"),
        ("scores = run_validation_loop(model)", "evaluation"),
        ("sd = model.state_dict()", "checkpoint"),
        ("model = DDP(model, device_ids=[0])", "init"),
        ("model.eval()\nout = model(x)", "forward"),
        ("model.eval()", None),
        ("if should_stop(step):", None),
    ],
)
def test_a_source_line_tells_what_was_being_done(code, phase):
    assert phase_of_code(code) == phase


def test_jax_is_not_told_to_turn_autograd_off(tmp_path):
    oom = (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 195957 bytes."
    )
    failure = failure_of(tmp_path, rank0=steps() + RAISED.format("metrics = p_eval_step(state, batch)", oom))
    assert failure.phase == "evaluation"
    assert failure.diagnosis.entry != "eval-oom-missing-no-grad"


def test_memory_that_runs_out_while_a_state_dict_is_gathered_did_so_at_a_checkpoint(tmp_path):
    said = steps() + "[2026-05-04 11:11:00] gathering full state dict at step 4\n"
    assert failure_of(tmp_path, rank0=said + f"{OOM}\n").phase == "checkpoint"


def warned(host, text):
    return f"{host}:70:204 [0] misc/shmutils.cc:72 NCCL WARN {text}\n"


SHM = "Error while creating shared memory segment /dev/shm/nccl-{} (size 33030528), error: No space left on device (28)"
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled system error, NCCL version 2.26.2"
)


def test_a_rank_whose_error_repeats_nccls_warning_is_on_the_host_that_warned(tmp_path):
    trace = "".join(f"[rank1]: {line}\n" for line in RAISED.format("model = DDP(net)", NCCL).splitlines())
    said = f"{trace}[rank1]: Last error:\n[rank1]: {SHM.format('Ab1Zz9')}\n"
    failure = failure_of(tmp_path, all=warned("pod-b", SHM.format("Ab1Zz9")) + said)
    assert (failure.ranks, failure.hosts, failure.phase) == ((1,), ("pod-b",), "init")


def test_a_warning_of_two_hosts_places_no_rank(tmp_path):
    both = warned("pod-a", SHM.format("x")) + warned("pod-b", SHM.format("x"))
    failure = failure_of(tmp_path, all=both + f"[rank1]: {SHM.format('x')}\n")
    assert (failure.ranks, failure.hosts) == ((1,), ())


PORT = "n3:30400:30710 [0] transport/net_ib.cc:120 NCCL WARN NET/IB : mlx5_1:1 Got async event : port error\n"
DOWN = "May  4 11:{} n3 kernel: mlx5_core 0000:31:00.0 ibp49s0: Link down\n"


@pytest.mark.parametrize(("down", "told"), [("10:31", "11:10:31"), ("02:00", "11:10:50")])
def test_the_kernel_stamps_a_link_that_went_down_unless_it_was_another_time(tmp_path, down, told):
    end = "[2026-05-04 11:10:50] shutting down\n"
    failure = failure_of(tmp_path, kern=DOWN.format(down), rank0=steps() + end, rank1=steps() + PORT + end)
    assert (failure.ranks, failure.hosts, failure.kind) == ((1,), ("n3",), "ib_error")
    assert iso_time(failure.time) == f"2026-05-04T{told}Z"


def test_a_rank_between_bars_tells_that_names_number_ranks_and_the_field_beside_it_is_the_host(tmp_path):
    line = "2026-05-04 11:10:0{}.000 | rank {:2} | hx{} | INFO | it {}\n"
    files = {
        f"amp-0{rank}": "".join(line.format(step, rank, rank // 2 + 1, step) for step in range(4)) for rank in range(4)
    }
    files["amp-03"] += RAISED.format("x = batch['labels']", "KeyError: 'labels'")
    failure = failure_of(tmp_path, **files)
    assert (failure.ranks, failure.hosts) == ((3,), ("hx2",))


@pytest.mark.parametrize(("said", "hosts"), [("lyra", ("vela",)), ("n7", ())])
def test_names_of_files_are_hosts_where_nccl_says_one_of_them(tmp_path, said, hosts):
    files = {f"{'vela' if rank < 2 else 'lyra'}_r{rank}": steps() for rank in range(4)}
    files["lyra_r3"] += f"{said}:905:1205 [1] NCCL INFO misc/socket.cc:50 -> 6\n"
    files["vela_r1"] += f"[rank1]: {OOM}\n"
    failure = failure_of(tmp_path, **files)
    assert (failure.ranks, failure.hosts) == ((1,), hosts)
