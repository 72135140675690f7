"""Compressed logs: rotated parts that were read when they were plain, archives of their own, such as are cut off."""

import bz2
import gzip
import lzma
import os
import random
import shutil

import pyarrow as pa
import pytest
from followed import append, lines

from aggregator.collect.newcomers import HOLD


def zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


COMPRESSORS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


def noise(size):
    """Lines that do not compress well."""
    return random.Random(size).randbytes(size // 2).hex("\n", 40).encode() + b"\n"


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("size", [3, 200, 20_000])
def test_the_archive_of_a_log_that_was_read_is_the_same_content(job, suffix, down, size):
    log, part = job.logs / "train.log", job.logs / "train.log.1"
    append(log, lines(0, size))
    job.look()
    append(log, lines(size, size + 5))
    if down:
        job.close()
    log.rename(part)
    log.touch()
    part.with_name(f"train.log.1.{suffix}").write_bytes(COMPRESSORS[suffix](part.read_bytes()))
    if not down:
        job.look()
    part.unlink()
    append(log, lines(90_000, 90_005))
    if down:
        job.start()
    job.settle()
    job.restart()
    job.settle()
    assert job.named() == {f"train.log.1.{suffix}": lines(0, size + 5), "train.log": lines(90_000, 90_005)}
    assert len(job.contents()) == 2
    assert job.skipped() == {}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_an_archive_of_its_own_is_read(job, suffix):
    (job.logs / f"rank0.log.{suffix}").write_bytes(COMPRESSORS[suffix](lines(0, 30_000)))
    job.settle()
    assert job.named() == {f"rank0.log.{suffix}": lines(0, 30_000)}
    job.restart()
    job.settle()
    assert job.contents() == [lines(0, 30_000)]


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_archives_of_several_members_are_read_to_the_last(job, suffix):
    packed = b"".join(COMPRESSORS[suffix](lines(number * 10, number * 10 + 10)) for number in range(5))
    (job.logs / f"rank0.log.{suffix}").write_bytes(packed)
    job.settle()
    assert job.contents() == [lines(0, 50)]


def test_an_archive_cut_at_each_kilobyte_gives_what_it_has_and_goes_on_when_it_grows(job):
    data = noise(40_000)
    packed, archive = gzip.compress(data), job.logs / "rank0.log.gz"
    for cut in range(1024, len(packed), 1024):
        archive.write_bytes(packed[:cut])
        for _ in range(3):
            job.look(HOLD / 2)
        (stored,) = job.contents()
        assert data.startswith(stored)
        assert len(stored) > cut - 2048
        assert "cut off" in job.skipped()["rank0.log.gz"]
    archive.write_bytes(packed)
    job.settle()
    assert (job.contents(), job.skipped()) == ([data], {})


@pytest.mark.parametrize("cut", range(1, 12))
def test_an_archive_that_has_hardly_begun_is_waited_for(job, cut):
    packed, archive = gzip.compress(lines(0, 99)), job.logs / "rank0.log.gz"
    archive.write_bytes(packed[:cut])
    job.settle()
    assert job.contents() == []
    archive.write_bytes(packed)
    job.settle()
    assert job.contents() == [lines(0, 99)]


def test_an_archive_that_is_written_for_minutes_is_not_taken_for_a_log_while_its_log_is_there(job):
    log, data = job.logs / "train.log", noise(100_000)
    append(log, data)
    job.look()
    log.rename(job.logs / "train.log.1")
    log.touch()
    packed, archive = gzip.compress(data), job.logs / "train.log.1.gz"
    for cut in range(500, len(packed), 9000):
        archive.write_bytes(packed[:cut])
        for _ in range(3):
            job.look(4 * HOLD)
    archive.write_bytes(packed)
    job.look()
    (job.logs / "train.log.1").unlink()
    job.settle()
    assert job.named() == {"train.log.1.gz": data}
    assert len(job.contents()) == 1


def test_an_archive_kept_beside_its_log_is_a_copy_for_good(job):
    """`gzip --keep`."""
    log = job.logs / "train.log.1"
    append(job.logs / "train.log", lines(9000, 9005))
    append(log, lines(0, 500))
    job.look()
    (job.logs / "train.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    for _ in range(5):
        job.settle()
    job.restart()
    for _ in range(5):
        job.settle()
    assert job.contents() == [lines(0, 500), lines(9000, 9005)]
    log.unlink()
    job.settle()
    assert job.named() == {"train.log.1.gz": lines(0, 500), "train.log": lines(9000, 9005)}


def test_the_archive_of_an_earlier_run_is_read_beside_the_empty_log_of_the_next(job):
    (job.logs / "train.log").touch()
    (job.logs / "train.log.gz").write_bytes(gzip.compress(lines(0, 50)))
    job.settle()
    append(job.logs / "train.log", lines(100, 101))
    job.settle()
    assert job.named() == {"train.log.gz": lines(0, 50), "train.log": lines(100, 101)}


def test_an_archive_of_more_than_was_read_gives_the_rest_once(job):
    log = job.logs / "train.log"
    append(log, lines(0, 100))
    job.look()
    append(log, lines(100, 30_000))
    (job.logs / "train.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    append(log, lines(40_000, 40_001))
    job.settle()
    assert job.named() == {"train.log.1.gz": lines(0, 30_000), "train.log": lines(40_000, 40_001)}
    assert b"".join(data for stream, data in job.arrived if stream == 0) == lines(0, 30_000)


def test_a_damaged_archive_is_named_and_gives_what_comes_before_the_damage(job):
    data = noise(3_000_000)
    packed = bytearray(gzip.compress(data))
    packed[len(packed) // 2] ^= 0xFF
    (job.logs / "rank0.log.gz").write_bytes(packed)
    job.settle()
    (stored,) = job.contents()
    assert stored[:1_000_000] == data[:1_000_000]
    assert "damaged" in job.skipped()["rank0.log.gz"]


def test_an_archive_of_something_else_is_passed_over(job):
    (job.logs / "rank0.log.gz").write_bytes(gzip.compress(random.Random(0).randbytes(9000)))
    job.settle()
    assert (job.contents(), job.skipped()) == ([], {"rank0.log.gz": "binary file"})
    assert job.collector.open_files == 0


def test_a_copy_of_an_archive_leaves_the_content_with_one_file(job):
    """As where a rotation by copy is interrupted between the copy and the removal."""
    log, part = job.logs / "train.log", job.logs / "train.log.1"
    append(log, lines(9000, 9009))
    append(part, lines(0, 3000))
    job.settle()
    part.with_name("train.log.2.gz").write_bytes(gzip.compress(part.read_bytes()))
    part.unlink()
    job.settle()
    shutil.copy(part.with_name("train.log.2.gz"), part.with_name("train.log.3.gz"))
    job.settle()
    followed = [tail.stream.id for tail in job.collector.tails if tail.stream is not None]
    assert len(followed) == len(set(followed)) == 2
    assert sorted(job.named().values()) == job.contents() == [lines(0, 3000), lines(9000, 9009)]


@pytest.mark.parametrize("size", [3, 3000])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_an_archive_that_is_renamed_after_the_listing_is_not_taken_for_its_successor(job, size, known, restarted):
    current, older, newer = lines(20_000, 20_009), lines(0, size), lines(10_000, 10_000 + size)
    first, second = job.logs / "train.log.2.gz", job.logs / "train.log.3.gz"
    append(job.logs / "train.log", current)
    job.look()
    if known:  # both were read when they were plain
        for data in (older, newer):
            append(job.logs / "train.log.1", data)
            job.look()
            (job.logs / "train.log.1").unlink()
            job.look()
    packed = gzip.compress(older)
    first.write_bytes(packed[: len(packed) // 2])
    job.look()
    append(first, packed[len(packed) // 2 :])
    job.collector.scan(job.now)  # lists the whole archive ...
    first.rename(second)  # ... which is rotated before it is read
    first.write_bytes(gzip.compress(newer))
    job.tick(0.0)
    if restarted:
        job.restart()
    job.settle()
    job.settle()
    assert job.contents() == sorted([older, newer, current])


def test_a_copy_that_is_compressed_before_it_was_settled_is_the_content_of_its_log(job):
    """Its name is that of the next part already."""
    log, part = job.logs / "train.log", job.logs / "train.log.1"
    append(log, lines(0, 2))
    job.look()
    shutil.copy(log, part)
    job.look()
    os.truncate(log, 0)
    part.with_name("train.log.2.gz").write_bytes(gzip.compress(part.read_bytes()))
    part.unlink()
    log.rename(part)
    log.touch()
    job.settle()
    assert job.contents() == [lines(0, 2)]
    assert job.named() == {"train.log.2.gz": lines(0, 2)}


def test_an_archive_that_begins_as_a_log_did_is_not_its_content_when_the_log_has_gone_on_and_ended(job):
    """What was found in the archive was found when the log held the banner and nothing else."""
    log, banner = job.logs / "train.log", b"world size 3 | every run writes this line\n"
    append(log, banner)
    (job.logs / "train.log.2.gz").write_bytes(gzip.compress(banner + lines(0, 50)))
    job.look()
    job.tick(0.5)
    append(log, lines(100, 110))
    job.tick(0.5)
    os.truncate(log, 0)
    append(log, b"another\n")
    job.settle()
    assert job.contents() == sorted([banner + lines(0, 50), banner + lines(100, 110), b"another\n"])
