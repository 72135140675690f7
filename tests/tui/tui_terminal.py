"""A terminal for a child process: collects each byte that it gets, and shows it as a real one would."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
from pathlib import Path

import pyte

CHILD = Path(__file__).with_name("tui_child.py")
DEADLINE_S = 20
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]P_^X].*?(?:\x07|\x1b\\)"  # strings: OSC, DCS, APC, PM, SOS
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x1f\x7f-\x9f]",
    re.DOTALL,
)


class Terminal:
    """80 columns, 24 lines; `output` is all that came."""

    def __init__(self, mode, **environ):
        self.output = b""
        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)
        self._end, child = pty.openpty()
        termios.tcsetwinsize(child, (24, 80))
        environ = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8",
                   "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environ}  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), mode], stdin=child, stdout=child, stderr=child, env=environ
        )
        os.close(child)

    @property
    def text(self):
        """What the screen shows."""
        return "\n".join(self._screen.display)

    def _read(self):
        if not select.select([self._end], [], [], DEADLINE_S)[0]:
            raise AssertionError(f"nothing more came; the screen is:\n{self.text}")
        try:
            data = os.read(self._end, 65536)
        except OSError:  # Linux says so when the child has closed its end
            return False
        self.output += data
        # pyte knows no kitty keyboard sequences and would print their ends.
        self._stream.feed(re.sub(rb"\x1b\[[<>=?][0-9;]*u", b"", data))
        return bool(data)

    def press(self, keys, shows):
        """Send keys, and wait until the screen shows that text."""
        os.write(self._end, keys.encode())
        while shows not in self.text:
            assert self._read(), f"the app has ended:\n{self.text}"

    def end(self, keys="", signal=None):
        """Send the last keys or a signal, and give back the exit code."""
        if signal is not None:
            self._process.send_signal(signal)
        os.write(self._end, keys.encode())
        while self._read():
            pass
        return self._process.wait(DEADLINE_S)

    def close(self):
        """End the child, if it still runs."""
        self._process.kill()
        self._process.wait()
        os.close(self._end)

    def controls(self):
        """The control characters and sequences that came; those that colour and place text without their numbers."""
        found = set(_CONTROL.findall(self.output.decode()))
        return {re.sub(r"[0-9;:]", "", item) if re.fullmatch(r"\x1b\[[0-9;:]*[mH]", item) else item for item in found}
