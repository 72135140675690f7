"""What the fuzzer found, each as small as it could be made."""

from pathlib import Path

from aggregator.pipeline import postmortem

SAMPLES = Path(__file__).parents[2] / "sample_runs"


def test_a_local_rank_beyond_all_worlds_makes_no_world(tmp_path):
    for file in sorted((SAMPLES / "hang-flight-recorder" / "job").iterdir()):
        (tmp_path / file.name).write_bytes(file.read_bytes().replace(b"(local_rank: 2)", b"(local_rank: 4294967296)"))
    verdict = postmortem([str(tmp_path)])
    assert verdict.job.world_size is None or verdict.job.world_size < 1 << 18
