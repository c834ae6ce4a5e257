"""The app's process under `nq run`: started, restarted when it dies, ended with us."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_LASTING = 10.0
_GRACE = 10.0


class App:
    """Runs a command in a process group of its own and passes its output on, line by line."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._command, self._env, self._say = command, {**os.environ, **env}, say
        self._process: asyncio.subprocess.Process | None = None

    async def run_once(self) -> int:
        """Run the command to its end and return its exit code."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        except OSError as error:
            self._say(f"cannot start {self._command[0]}: {error.strerror}")
            return 127
        await self._pass_on(self._process)
        code = await self._process.wait()
        self._process = None
        return code

    async def run_for_ever(self) -> None:
        """Run the command again whenever it ends, with growing pauses while it fails at once."""
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while True:
            began = loop.time()
            code = await self.run_once()
            pause = _FIRST_PAUSE if loop.time() - began > _LASTING else pause
            self._say(f"the app ended with exit code {code}; starting it again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def stop(self) -> None:
        """End the command and all it started: SIGTERM, and SIGKILL after a while."""
        process = self._process
        if process is None:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE)
                return

    async def _pass_on(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            return
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                self._say("(the app wrote a line that is too long to show)")
                continue
            if not line:
                return
            self._say(line.decode(errors="replace").rstrip())
