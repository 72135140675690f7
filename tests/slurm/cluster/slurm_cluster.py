"""A real Slurm on one machine: a controller and nodes, each in network and host name spaces of its own.

It leaves the machine as it was: its own munge key and socket, its own configuration, addresses that nobody else sees.
Needs root, and Debian's packages `slurm-wlm`, `munge`, `iproute2`.
"""

import os
import re
import shutil
import signal
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "nsenter", "setpriv", "unshare")
ADMIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = "dpx-trial"
"""Whose the jobs are. Made for the cluster, and removed with it."""
CONTROLLER = "trial-ctl"
EPILOGS = ("epilog", "epilog_slurmctld")
"""Slurm's two kinds: one a node, as root; one a job, on the controller."""
_NETWORK = "10.213.7"
_CPUS, _MEMORY_MB = 32, 8000
"""What Slurm is told that a node has: enough for all jobs at once."""
_POLL_S = 0.2
_NAMED = re.compile(r"([A-Z][A-Za-z:/]*)=(.*?)(?= [A-Z][A-Za-z:/]*=|$)")
_CGROUPS = Path("/sys/fs/cgroup")
_LOG = Path("/dev/log")

_CONFIGURATION = """\
ClusterName=trial
SlurmctldHost={controller}({network}.1)
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
SlurmctldPidFile={root}/state/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
SlurmdSpoolDir={root}/spool-%n
StateSaveLocation={root}/state
SlurmdParameters=config_overrides
DebugFlags=NO_CONF_HASH
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
ProctrackType={proctrack}
TaskPlugin={task}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MailProg=/bin/true
ReturnToService=2
KillWait=10
FirstJobId={first_job}
SlurmctldTimeout=10
SlurmdTimeout=10
PrologEpilogTimeout=60
Epilog={root}/epilog
EpilogSlurmctld={root}/epilog_slurmctld
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_CGROUP_CONFIGURATION = """\
CgroupPlugin={version}
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
{quirk}
"""

_TIMED = """\
#!/bin/sh
# What Slurm calls: the script under test, and beside it a note of how long it took and how it ended.
export SLURM_CONF="{root}/slurm.conf" # elsewhere it is at the default place, which the controller's epilog relies on
begin=$(/usr/bin/date +%s%N)
"{root}/scripts/{name}" >>"{root}/notes/{name}.log" 2>&1
code=$?
/usr/bin/printf '%s %s %s %s\\n' "$SLURM_JOB_ID" "${{SLURMD_NODENAME:-controller}}" "$code" \\
    "$((($(/usr/bin/date +%s%N) - begin) / 1000000))" >>"{root}/notes/{name}"
exit $code
"""


def why_no_cluster() -> str | None:
    """Why none can be started here."""
    if os.geteuid() != 0:
        return "only root can start a Slurm cluster"
    missing = [program for program in PROGRAMS if shutil.which(program, path=ADMIN_PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (apt-get install slurm-wlm munge iproute2)"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "this machine allows no name spaces"


def cgroup_version() -> str | None:
    """The kind of cgroups that Slurm can use here to limit memory."""
    if all(os.access(_CGROUPS / name / "cgroup.procs", os.W_OK) for name in ("memory", "freezer")):
        return "cgroup/v1"
    with suppress(OSError):
        controllers = (_CGROUPS / "cgroup.controllers").read_text().split()
        if "memory" in controllers and os.access(_CGROUPS / "cgroup.procs", os.W_OK):
            return "cgroup/v2"
    return None


class _SystemLog(socketserver.UnixDatagramServer):
    """Keeps what the nodes tell their system's log."""

    def __init__(self, path: Path):
        super().__init__(str(path), socketserver.BaseRequestHandler)
        path.chmod(0o666)
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL_S,), daemon=True)
        self._thread.start()

    def finish_request(self, request, client_address):
        self.lines.append(request[0].decode(errors="replace"))

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


@dataclass(frozen=True, slots=True)
class Run:
    """How one epilog went: on which node, its exit code, and how long it took."""

    job: int
    node: str
    code: int
    seconds: float


@dataclass
class Cluster:
    """Started by `start`, gone after `stop`. Put the scripts under test at `epilog` and `epilog_slurmctld`."""

    nodes: Sequence[str]
    root: Path = field(init=False)
    _daemons: dict[str, subprocess.Popen] = field(default_factory=dict, init=False)
    _made: dict[str, bool] = field(default_factory=dict, init=False)
    """What had to be made outside of `root`."""

    def __post_init__(self):
        # Not below /run or /tmp: the one may be `noexec`, the other a file system that jobs do not share.
        self.root = Path(tempfile.mkdtemp(prefix="dpx-slurm-", dir="/var/tmp"))
        self.root.chmod(0o755)
        (self.root / "scripts").mkdir()
        self.epilog, self.epilog_slurmctld = (self.root / "scripts" / name for name in EPILOGS)
        self.rank = self.root / "rank.sh"
        """The program of one rank, where the jobs' user can reach it."""
        self.system_log = _SystemLog(self.root / "log.socket")

    # -- up and down

    def start(self) -> None:
        made = _command("useradd", "--no-create-home", "--shell", "/bin/sh", USER, check=False)
        self._made["user"] = made.returncode == 0
        self._made["log"] = not _LOG.exists()
        if self._made["log"]:
            _LOG.touch()  # something to put the cluster's own over, for the cluster's processes only
        for name, owner, mode in (
            ("state", "slurm", 0o700), ("log", "slurm", 0o755), ("munge", "munge", 0o755), ("jobs", "root", 0o755),
            ("notes", "root", 0o1777),
        ):  # fmt: skip
            (self.root / name).mkdir()
            shutil.chown(self.root / name, owner)
            (self.root / name).chmod(mode)
        shutil.copy(Path(__file__).with_name("rank.sh"), self.rank)
        self.rank.chmod(0o755)
        self._wire()
        self._configure()
        self._start_munge()
        self._daemon(CONTROLLER, "setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups", "slurmctld", "-D", "-c")
        self.until(lambda: self.ask("scontrol", "ping", check=False).returncode == 0, 15, "the controller answers")
        for node in self.nodes:
            (self.root / f"spool-{node}").mkdir()
            self._daemon(node, "slurmd", "-D")
        self.until(lambda: set(self.states().values()) == {"idle"}, 30, "all nodes are idle")

    def stop(self) -> None:
        """Ends all that was started, also if `start` failed half-way."""
        with suppress(OSError, subprocess.SubprocessError, AssertionError):
            self.ask("scancel", f"--user={USER}", check=False)
            self.until(lambda: not self.ask("squeue", "-h", "-t", "running").stdout.strip(), 10, "no job runs")
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()
        for host in (CONTROLLER, *self.nodes):
            self._kill_all_of(host)
            _command("ip", "netns", "delete", self._space(host), check=False)
        self._remove_cgroups()
        self.system_log.close()
        if self._made.get("log"):
            _LOG.unlink()
        if self._made.get("user"):
            _command("userdel", USER, check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    def lose(self, node: str) -> None:
        """As when a node loses its power: nothing of it is there any more, and nobody is told."""
        _command("ip", "-n", self._space(node), "link", "set", "eth0", "down")
        self._kill_all_of(node)

    # -- jobs

    def submit(self, name: str, script: str, *options: str) -> int:
        """A batch job of the user, in a folder that only the user can read; its number."""
        folder = self.folder(name)
        folder.mkdir()
        shutil.chown(folder, USER, USER)
        folder.chmod(0o700)
        told = self.ask_as_user("sbatch", "--parsable", *options, cwd=folder, stdin=f"#!/bin/sh\n{script}\n")
        return int(told.stdout.split(";")[0])

    def ask_as_user(self, *command: str, cwd: Path = Path("/"), stdin: str = "") -> subprocess.CompletedProcess:
        """As `ask`, for the one whose the jobs are."""
        become = f"setpriv --reuid={USER} --regid={USER} --init-groups env USER={USER}"
        return self.ask(*become.split(), f"HOME={cwd}", *command, cwd=cwd, stdin=stdin)

    def folder(self, name: str) -> Path:
        return self.root / "jobs" / name

    def ask(
        self, *command: str, cwd: Path = Path("/"), stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess:
        """Runs a command where it reaches the controller."""
        return _command(*self._inside(CONTROLLER), *command, cwd=cwd, stdin=stdin, check=check, env=self._environment())

    def jobs(self, number: int) -> list[dict[str, str]]:
        """What `scontrol` tells of a job: of each task that it has, if it is an array."""
        lines = self.ask("scontrol", "show", "job", "-o", str(number)).stdout.splitlines()
        return [dict(_NAMED.findall(line)) for line in lines if line]

    def states(self) -> dict[str, str]:
        """The state of each node, as `sinfo` shows it."""
        lines = self.ask("sinfo", "-h", "-N", "-o", "%N %T").stdout.split("\n")
        return dict(line.split() for line in lines if line)

    def runs(self, name: str = "epilog") -> list[Run]:
        """All runs of one of the epilogs that have ended."""
        file = self.root / "notes" / name
        lines = file.read_text().splitlines() if file.exists() else []
        return [
            Run(int(job), node, int(code), int(ms) / 1000) for job, node, code, ms in (line.split() for line in lines)
        ]

    def until(self, holds, seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            dead = [host for host, daemon in self._daemons.items() if daemon.poll() not in {None, -signal.SIGKILL}]
            assert not dead, f"ended early: {', '.join(dead)}\n{self.log()}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.log()}"
            time.sleep(_POLL_S)

    def log(self) -> str:
        """The end of what the controller logged."""
        with suppress(OSError):
            return (self.root / "log" / "slurmctld.log").read_text(errors="replace")[-3000:]
        return ""

    # -- parts

    def _space(self, host: str) -> str:
        return f"{self.root.name}-{host}"

    def _inside(self, host: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self._space(host)}"]

    def _environment(self) -> dict[str, str]:
        return {"PATH": ADMIN_PATH, "SLURM_CONF": str(self.root / "slurm.conf")}

    def _wire(self) -> None:
        """A bridge in the controller's network, a cable from each node."""
        for host in (CONTROLLER, *self.nodes):
            _command("ip", "netns", "add", self._space(host))
            _command("ip", "-n", self._space(host), "link", "set", "lo", "up")
        hub = ["ip", "-n", self._space(CONTROLLER)]
        _command(*hub, "link", "add", "hub", "type", "bridge")
        _command(*hub, "address", "add", f"{_NETWORK}.1/24", "dev", "hub")
        _command(*hub, "link", "set", "hub", "up")
        for number, node in enumerate(self.nodes):
            own = ["ip", "-n", self._space(node)]
            port = f"port{number}"
            _command(*hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", self._space(node))
            _command(*hub, "link", "set", port, "master", "hub", "up")
            _command(*own, "address", "add", f"{_NETWORK}.{10 + number}/24", "dev", "eth0")
            _command(*own, "link", "set", "eth0", "up")
            _command(*own, "route", "add", "default", "via", f"{_NETWORK}.1")

    def _configure(self) -> None:
        version = cgroup_version()
        nodes = [
            f"NodeName={node} NodeAddr={_NETWORK}.{10 + number} CPUs={_CPUS} RealMemory={_MEMORY_MB} State=UNKNOWN"
            for number, node in enumerate(self.nodes)
        ]
        (self.root / "slurm.conf").write_text(
            _CONFIGURATION.format(
                controller=CONTROLLER,
                network=_NETWORK,
                root=self.root,
                nodes="\n".join(nodes),
                # The kernel's log outlives the cluster: no job may have the number of one of an earlier cluster.
                first_job=100_000 + int(time.time()) % 10_000_000,
                proctrack="proctrack/cgroup" if version else "proctrack/linuxproc",
                task="task/cgroup" if version else "task/none",
            )
        )
        if version:
            quirk = "CgroupAutomount=no" if version == "cgroup/v1" else "IgnoreSystemd=yes"
            (self.root / "cgroup.conf").write_text(_CGROUP_CONFIGURATION.format(version=version, quirk=quirk))
        for name in EPILOGS:
            (self.root / name).write_text(_TIMED.format(root=self.root, name=name))
            (self.root / name).chmod(0o755)

    def _start_munge(self) -> None:
        folder = self.root / "munge"
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o400)
        shutil.chown(folder / "key", "munge", "munge")
        own = [
            f"--{name}={folder / name.removesuffix('-file')}"
            for name in ("key-file", "pid-file", "log-file", "seed-file")
        ]
        self._daemon(
            "munge", "setpriv", "--reuid=munge", "--regid=munge", "--clear-groups",
            "munged", "--foreground", f"--socket={folder}/socket", *own,
        )  # fmt: skip
        self.until((folder / "socket").exists, 10, "munge is up")

    def _daemon(self, host: str, *command: str) -> None:
        """Starts a daemon of a host, with the host's name and network; `munge` serves all and needs neither."""
        if host != "munge":
            named = f'hostname {host}; mount --bind {self.root}/log.socket {_LOG}; exec "$@"'
            unshared = ["unshare", "--uts", "--mount", "--propagation=private", "sh", "-euc", named, "sh"]
            command = (*self._inside(host), *unshared, *command)
        with (self.root / "log" / f"{host}.out").open("wb") as out:
            self._daemons[host] = subprocess.Popen(
                command, env=self._environment(), cwd=self.root / "log", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def _kill_all_of(self, host: str) -> None:
        told = _command("ip", "netns", "pids", self._space(host), check=False)
        for pid in told.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def _remove_cgroups(self) -> None:
        for node in self.nodes:
            for top in _CGROUPS.glob(f"*/*{node}*"):
                for folder, _, _ in os.walk(top, topdown=False):
                    with suppress(OSError):
                        Path(folder).rmdir()


def _command(
    *command: str, cwd: Path = Path("/"), stdin: str = "", check: bool = True, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess:
    done = subprocess.run(
        command, cwd=cwd, input=stdin, env=env or {"PATH": ADMIN_PATH}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stderr}"
    return done
