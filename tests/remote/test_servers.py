"""Real servers on loopback, where their libraries are installed: S3 as moto plays it, sftp as OpenSSH does."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from aggregator.cli import run
from aggregator.pipeline import investigate
from aggregator.verdict import to_json

SAMPLE = Path(__file__).parent.parent.parent / "sample_runs" / "two-node-segfault" / "job"
SSHD = "/usr/sbin/sshd"
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
PATIENCE_S = 30

pytestmark = pytest.mark.filterwarnings("default")  # the libraries' own


def answer(case):
    told = to_json(case.verdict)
    told["job"].pop("path")
    return told


def test_s3(monkeypatch):
    moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        fs = s3fs.S3FileSystem()
        fs.mkdir("runs")
        fs.put(f"{SAMPLE}/", "runs/4242/", recursive=True)
        assert answer(investigate(["s3://runs/4242"])) == answer(investigate([str(SAMPLE)]))
    finally:
        server.stop()


@pytest.fixture
def ssh_port(tmp_path, monkeypatch):
    """The port of an sshd of the test's own, which lets a key of the test's own in."""
    if not (shutil.which("ssh-keygen") and Path(SSHD).exists() and Path(SFTP_SERVER).exists()):
        pytest.skip("OpenSSH's server is not installed")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    for key in (tmp_path / "host", home / ".ssh" / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    monkeypatch.setenv("HOME", str(home))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = tmp_path / "sshd_config"
    settings.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path / 'host'}\nStrictModes no\nUsePAM no\nPidFile none\n"
        f"AuthorizedKeysFile {home / '.ssh' / 'id_ed25519.pub'}\nSubsystem sftp {SFTP_SERVER}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-f", settings], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def test_sftp(ssh_port, tmp_path, capfd):
    pytest.importorskip("paramiko", reason="paramiko is not installed")
    if os.geteuid() != 0:
        pytest.skip("sshd needs root")
    url = f"sftp://root@127.0.0.1:{ssh_port}{SAMPLE}"
    assert run(["postmortem", url, "--no-history"]) == 3
    error = capfd.readouterr().err
    assert error.startswith("error: cannot be read: SSHException: [127.0.0.1]:")
    assert "is not in known_hosts" in error
    host_key = " ".join((tmp_path / "host.pub").read_text().split()[:2])
    (tmp_path / "home" / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{ssh_port} {host_key}\n")
    assert answer(investigate([url])) == answer(investigate([str(SAMPLE)]))
