"""What the fuzzer found, each as small as it could be made."""

import json
import time
from pathlib import Path

from aggregator.pipeline import postmortem
from aggregator.verdict import to_json

SAMPLES = Path(__file__).parents[2] / "sample_runs"


def test_a_local_rank_beyond_all_worlds_makes_no_world(tmp_path):
    for file in sorted((SAMPLES / "hang-flight-recorder" / "job").iterdir()):
        (tmp_path / file.name).write_bytes(file.read_bytes().replace(b"(local_rank: 2)", b"(local_rank: 4294967296)"))
    verdict = postmortem([str(tmp_path)])
    assert verdict.job.world_size is None or verdict.job.world_size < 1 << 18


def test_a_rank_that_only_the_name_of_a_file_in_a_message_tells_is_judged(tmp_path):
    (tmp_path / "x.log").write_text(
        "OSError: [Errno 28] No space left on device: './out/checkpoint-1190/rank_4_optim_states.pt'\n"
    )
    assert postmortem([str(tmp_path)]).first_failure is not None


def test_a_world_of_many_ranks_from_a_few_lines_is_told_within_seconds(tmp_path):
    lines = [f"[rank{rank}]: ValueError: x\n" for rank in range(4)]
    (tmp_path / "x.log").write_text("".join(lines) + "[rank0]: world_size=65536 rank 0 of 65536\n")
    began = time.process_time()
    told = to_json(postmortem([str(tmp_path)]))
    json.dumps(told, indent=2)
    assert time.process_time() - began < 5
    assert len(told["collateral"]) < 2000
    assert len(told["job"]["ranks_missing"]) > 65_000


def test_a_rank_that_is_none_of_the_jobs_by_its_own_count_is_judged(tmp_path):
    (tmp_path / "x.log").write_text(
        "[default1]:[pod/vits-worker-1/pytorch] vits-worker-1:33:449 [0] NCCL INFO comm 0x55490adec2 rank 2 nRanks 4 "
        "nNodes 4 localRanks 1 localRank 0 MNNVL 0\n"
        "[default8]:[pod/vits-worker-1/pytorch] INFO 2024-06-13 10:21:41,236 epoch=1 step=2800 loss_gen=27.632\n"
        "[default0]:[pod/vits-master-0/pytorch] [rank0]: socketProgress: Connection closed by remote peer "
        "vits-worker-1.vits<40182>\n"
    )
    assert postmortem([str(tmp_path)]).outcome is not None
