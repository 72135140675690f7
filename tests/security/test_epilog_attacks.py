"""What a user can plant for an epilog that runs as root: nothing is read, written, run or held up by it."""

import contextlib
import gzip
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from epilog_runs import COMMAND, FAULT, IS_ROOT, NOBODY, SECRET, Node, as_user

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="attacks on a program that runs as root: needs root")


@pytest.fixture
def memory_node():
    """A node whose disk is memory, where there is one: a million files are made there in seconds."""
    made = Node(disk="/dev/shm" if Path("/dev/shm").is_dir() else "/tmp")
    yield made
    made.remove()


@pytest.fixture
def secret(node):
    """A file that only root can read, whose text would show in any report on it."""
    path = node.root / "secret.log"
    path.write_text(FAULT.replace("CUDA out", f"{SECRET} CUDA out"))
    path.chmod(0o600)
    return path


@pytest.fixture
def listener():
    """A place to post to, and what came."""
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    yield server
    server.close()


def nothing_of(secret_text, node, ended):
    written, _ = node.written()
    return secret_text not in ended.said and secret_text not in ended.printed and secret_text.encode() not in written


class TestFilesOfOthers:
    @pytest.mark.parametrize("where", ["slurm-123.out", "123/rank_0.log"])
    @pytest.mark.parametrize("how", ["symlink_to", "hardlink_to"])
    def test_s1_a_link_to_what_only_root_reads(self, node, secret, where, how):
        node.write("123/rank_1.log", FAULT)
        getattr(node.home / where, how)(secret)
        ended = node.epilog()
        assert ended.code == 0
        assert "rank 1" in ended.said
        assert nothing_of(SECRET, node, ended)

    @pytest.mark.parametrize("how", ["symlink_to", "hardlink_to"])
    def test_a_link_to_what_everybody_can_read_but_is_somebody_elses(self, node, secret, how):
        secret.chmod(0o644)
        getattr(node.home / "slurm-123.out", how)(secret)
        ended = node.epilog()
        assert ended.code == 0
        assert nothing_of(SECRET, node, ended)

    def test_s2_a_second_name_of_a_file_of_the_users(self, node):
        (node.home / "123").mkdir()
        os.link(node.write("elsewhere.log", FAULT.replace("CUDA", f"{SECRET} CUDA")), node.home / "123" / "rank_0.log")
        node.write("123/rank_1.log", FAULT)
        node.own(node.home / "123")
        ended = node.epilog()
        assert nothing_of(SECRET, node, ended)
        assert {"file": "rank_0.log", "reason": "not read: it has another name too (a hard link)"} in node.verdict()[
            "coverage"
        ]["files_skipped"]

    def test_a_folder_that_is_a_link(self, node, secret):
        private = node.root / "private"
        private.mkdir(mode=0o700)
        (private / "rank_0.log").write_text(secret.read_text())
        for name in ("123", "out"):
            (node.home / name).symlink_to(private)
        ended = node.epilog(SLURM_JOB_STDOUT=f"{node.home}/out/rank_0.log")
        assert ended.code == 0
        assert nothing_of(SECRET, node, ended)

    @pytest.mark.parametrize("target", ["/etc/shadow", "/proc/self/mem", "/proc/self/environ", "/proc/kmsg", "/root"])
    def test_s1_output_that_is_told_to_be_a_file_of_the_system(self, node, target):
        assert node.epilog(SLURM_JOB_STDOUT=target).code == 0
        assert node.written() == (b"", set())

    def test_s2_a_file_that_is_swapped_for_a_link_while_it_is_looked_at(self, node, secret):
        for rank in range(200):
            node.write(f"123/rank_{rank}.log", FAULT)

        def swap():
            while True:
                for rank in range(200):
                    path = node.home / "123" / f"rank_{rank}.log"
                    with contextlib.suppress(OSError):
                        path.rename(path.with_suffix(".kept"))
                        path.symlink_to(secret)
                    with contextlib.suppress(OSError):
                        path.with_suffix(".kept").rename(path)

        swapper = as_user(swap)
        try:
            for _ in range(3):
                ended = node.epilog()
                assert ended.code == 0
                assert nothing_of(SECRET, node, ended)
        finally:
            os.kill(swapper, signal.SIGKILL)
            os.waitpid(swapper, 0)


class TestWhatNeverEnds:
    def test_s5_pipes_sockets_and_devices(self, node):
        os.mkfifo(node.home / "slurm-123.out")
        node.write("123/rank_1.log", FAULT)
        os.mkfifo(node.home / "123" / "rank_2.log")
        (node.home / "123" / "rank_3.log").symlink_to("/dev/zero")
        with socket.socket(socket.AF_UNIX) as planted:
            planted.bind(str(node.home / "123" / "rank_4.log"))
            ended = node.epilog()
        assert ended.code == 0
        assert ended.seconds < 10
        assert "rank 1: CUDA" in ended.said

    def test_a_file_of_a_terabyte(self, node):
        node.config("read_mb = 64\ntime_limit_s = 15")
        node.write("123/rank_1.log", FAULT)
        endless = node.write("123/rank_2.log", "x\n")
        os.truncate(endless, 1 << 40)
        ended = node.epilog()
        assert ended.code == 0
        assert "rank 1: CUDA" in ended.said
        (skipped,) = [item for item in node.verdict()["coverage"]["files_skipped"] if item["file"] == "rank_2.log"]
        assert skipped["reason"].startswith("only its last")

    def test_the_end_of_a_long_log_is_what_is_read(self, node):
        node.config("read_mb = 1")
        node.write("slurm-123.out", "0: step 1\n" * 500_000 + FAULT)
        assert "rank 1: CUDA" in node.epilog().said

    def test_a_file_that_grows_as_it_is_read(self, node):
        node.config("read_mb = 8\ntime_limit_s = 15")
        log = node.write("slurm-123.out", FAULT)

        def grow():
            with log.open("ab") as out:
                for _ in range(2000):
                    out.write(b"0: step 1\n" * 20_000)

        writer = as_user(grow)
        try:
            ended = node.epilog()
        finally:
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
        assert ended.code == 0
        assert ended.seconds < 16

    @pytest.mark.parametrize(("where", "cut"), [(".", 0), ("123", 1)])
    def test_s5_a_folder_of_a_million_files(self, memory_node, where, cut):
        folder = memory_node.home / where

        def fill():
            folder.mkdir(exist_ok=True)
            opened = os.open(folder, os.O_RDONLY)
            for number in range(1_000_000):
                os.mknod(f"rank_{number}.log", dir_fd=opened)

        os.waitpid(as_user(fill), 0)
        memory_node.write("slurm-123.out", FAULT)
        ended = memory_node.epilog()
        assert ended.code == 0
        assert ended.seconds < 25
        assert "rank 1: CUDA" in ended.said
        skipped = memory_node.verdict()["coverage"]["files_skipped"]
        assert [item["reason"].startswith("limit of 20000 files") for item in skipped] == [True] * cut

    def test_s5_a_deep_tree_and_a_loop(self, node):
        node.write("slurm-123.out", FAULT)
        node.write("123/rank_1.log", FAULT)

        def dig():
            os.chdir(node.home / "123")
            for _ in range(2000):
                os.mkdir("d")  # noqa: PTH102 - no path is that long
                os.symlink("..", "loop")  # noqa: PTH211
                os.chdir("d")

        os.waitpid(as_user(dig), 0)
        node.own(node.home / "123")
        ended = node.epilog()
        assert ended.code == 0
        assert ended.seconds < 15
        assert "rank 1" in ended.said

    def test_a_bomb(self, node):
        node.config("read_mb = 32\ntime_limit_s = 15")
        node.write("123/rank_0.log.gz", gzip.compress(bytes(1 << 30), 1))
        node.write("123/rank_1.log", FAULT)
        ended = node.epilog()
        assert ended.code == 0
        assert "rank 1" in ended.said


class TestCodeAndSettings:
    def test_s4_nothing_of_the_jobs_folder_is_run_or_obeyed(self, node, listener):
        port = listener.getsockname()[1]
        marker = node.root / "ran"
        evil = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n"
        for name in ("typing.py", "sitecustomize.py", "usercustomize.py", "aggregator.py", "json.py", "resource.py"):
            node.write(name, evil)
        for name in ("denpex.toml", "slurm.toml", ".denpex.toml", "pyproject.toml", "redact.toml"):
            node.write(name, f'webhook = "http://127.0.0.1:{port}/"\nkernel = true\n')
        node.write("slurm-123.out", FAULT)
        told = {f"PYTHON{key}": str(node.home) for key in ("PATH", "HOME", "STARTUP", "USERBASE")}
        told |= {
            "HOME": str(node.home),
            "XDG_CACHE_HOME": str(node.home),
            "DENPEX_WEBHOOK": f"http://127.0.0.1:{port}/",
        }
        done = subprocess.run(
            [*COMMAND, "--config", str(node.config_file)], env=node.environment(**told), cwd=node.home, check=False,
            capture_output=True, encoding="utf-8", timeout=60,
        )  # fmt: skip
        assert done.returncode == 0
        assert "rank 1" in done.stderr
        assert not marker.exists()
        assert not (node.home / "denpex-agg").exists()
        with pytest.raises(BlockingIOError):
            listener.accept()

    def test_settings_that_others_can_write_are_not_obeyed(self, node, listener):
        port = listener.getsockname()[1]
        node.write("slurm-123.out", FAULT)
        node.config(f'webhook = "http://127.0.0.1:{port}/"')
        node.config_file.chmod(0o666)
        assert "configuration ignored" in node.epilog().said
        with pytest.raises(BlockingIOError):
            listener.accept()

    def test_s19_the_webhook_gets_no_log_text_and_is_not_called_by_root(self, node):
        got = []
        with socket.create_server(("127.0.0.1", 0)) as server:
            node.config(f'webhook = "http://127.0.0.1:{server.getsockname()[1]}/hook"')
            node.write("slurm-123.out", FAULT.replace("CUDA out", f"{SECRET} CUDA out"))

            def serve():
                connection, (_, port) = server.accept()
                with connection:
                    connection.settimeout(5)
                    owners = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
                    got.append([int(row[7]) for row in owners if row[1].endswith(f":{port:04X}")])
                    data = b""
                    while b"}" not in data:
                        data += connection.recv(65536)
                    got.append(data)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            assert node.epilog().code == 0
            thread.join(5)
        owners, data = got
        assert owners == [NOBODY]
        assert b"rank 1" in data
        assert SECRET.encode() not in data


class TestEnvironment:
    HOSTILE = (
        "a\nb: all is well",
        "%s%n%j%A%t" * 50, "../../../../etc", "\x1b]52;c;evil\x07\x1b[2J", "'; touch /tmp/x; \"$(x)`x`",
        "\u202e\u2066evil", "x" * 100_000, "\udcff\udcfe", "*" * 5000, "[" * 5000, "node-[0-99999999]",
        "n[1-9][1-9][1-9][1-9][1-9]",
        "-rf", "/", ".", "..", "~root", "/dev/stdin", "/proc/self/fd/0",
    )  # fmt: skip

    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    def test_whatever_slurm_says_is_no_instruction(self, node, text):
        node.write("slurm-123.out", FAULT)
        names = (
            "SLURM_JOB_NAME", "SLURM_JOB_WORK_DIR", "SLURM_JOB_STDOUT", "SLURM_JOB_STDERR", "SLURM_NODELIST",
            "SLURMD_NODENAME", "SLURM_JOB_EXIT_CODE2", "SLURM_JOB_COMMENT", "SLURM_HET_JOB_ID", "SLURM_SCRIPT_CONTEXT",
        )  # fmt: skip
        for told in (dict.fromkeys(names, text), {"SLURM_JOB_NAME": text, "SLURM_JOB_EXIT_CODE2": text}):
            ended = node.epilog(**told)
            assert ended.code == 0
            assert "Traceback" not in ended.said
            assert "this is a bug" not in ended.said
            assert not any((ord(char) < 32 and char != "\n") or char == "\u202e" for char in ended.said)
            assert all(line.startswith("denpex-agg[") for line in ended.said.splitlines())
        assert not Path("/tmp/x").exists()

    @pytest.mark.parametrize(
        "text", ["", "0", "abc", "123\n", "-5", "1e3", "99999999999", "../123", "\uff11\uff12\uff13"]
    )
    def test_an_id_that_is_none(self, node, text):
        ended = node.epilog(SLURM_JOB_ID=text, SLURM_JOBID="")
        assert ended.code == 0
        assert node.written() == (b"", set())


class TestPlantedOutputs:
    NAMES = ("denpex-123.txt", "denpex-123.json")

    @pytest.mark.parametrize("folder", ["home", "reports"])
    def test_s3_links_at_our_names_are_not_followed(self, node, folder):
        node.write("slurm-123.out", FAULT)
        target = node.root / "target"
        target.write_text("as it was")
        for name in (*self.NAMES, "denpex-123.claim"):
            (getattr(node, folder) / name).symlink_to(target)
        ended = node.epilog()
        assert ended.code == 0
        assert target.read_text() == "as it was"
        assert node.verdict()["first_failure"]["ranks"] == [1]

    @pytest.mark.parametrize("folder", ["home", "reports"])
    def test_folders_and_pipes_at_our_names(self, node, folder):
        node.write("slurm-123.out", FAULT)
        (getattr(node, folder) / "denpex-123.txt").mkdir()
        os.mkfifo(getattr(node, folder) / "denpex-123.json")
        os.mkfifo(node.reports / "denpex-123.kernel.node-2.log")
        ended = node.epilog(SLURM_NODELIST="node-[1-2]")
        assert ended.code == 0
        assert "rank 1" in ended.said

    def test_a_report_folder_of_the_users_is_not_written_to(self, node):
        node.write("slurm-123.out", FAULT)
        os.chown(node.reports, NOBODY, NOBODY)
        ended = node.epilog()
        assert "report_dir: the folder is not used" in ended.said
        assert not list(node.reports.iterdir())

    def test_s3_a_report_folder_that_is_a_link(self, node):
        node.write("slurm-123.out", FAULT)
        real = node.reports.rename(node.root / "real")
        node.reports.symlink_to(real)
        assert node.epilog().code == 0
        assert not list(real.iterdir())

    def test_the_output_is_in_a_folder_where_the_user_must_not_write(self, node):
        node.write("slurm-123.out", FAULT)
        os.chown(node.home, 0, NOBODY)
        node.home.chmod(0o750)
        ended = node.epilog()
        assert ended.code == 0
        assert "no report in the job's folder" in ended.said
        assert {path.name for path in node.home.iterdir()} == {"slurm-123.out"}
