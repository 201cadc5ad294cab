"""Each family of libraries in a process of its own, told what to time by lines of JSON."""

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

_MODULE = "sparsetile.bench._bench_process"
_END = object()
# Questions one process answers: what libraries keep for every shape they saw ends with it.
_MOST = 100


class ProcessError(Exception):
    """A process ended, or did not answer in time."""


class Process:
    """A child process of one family; it is started by the first question and kept.

    Args:
        family: Name of the family.
        threads: Threads that its libraries use.
    """

    def __init__(self, family: str, threads: int) -> None:
        self._family, self._threads = family, threads
        self._child: subprocess.Popen[str] | None = None
        self._errors: Any = None
        self._asked = 0

    def __enter__(self) -> "Process":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, question: dict[str, Any], seconds: float) -> Any:
        """Send a question and wait for its answer.

        Args:
            question: Plain data with the name of the task under `task`.
            seconds: How long to wait.

        Returns:
            Plain data.

        Raises:
            ProcessError: If the process ended or did not answer; the next question starts anew.
        """
        if self._asked >= _MOST:
            self.close()
        if self._child is None:
            self._start()
        self._asked += 1
        child = self._child
        assert child is not None and child.stdin is not None
        try:
            child.stdin.write(json.dumps(question) + "\n")
            child.stdin.flush()
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise ProcessError(f"no answer in {seconds:.0f} s") from None
        except OSError:
            answer = _END
        if answer is _END:
            raise ProcessError(self._last_words())
        return json.loads(answer)

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        pass
            self._errors.close()
            self._child = None

    def _start(self) -> None:
        self._asked = 0
        # The library's own progress bars and warnings must not reach the terminal.
        self._errors = tempfile.TemporaryFile("w+")
        self._child = subprocess.Popen(
            [sys.executable, "-m", _MODULE, self._family, str(self._threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | _environment(self._family, self._threads),
            text=True,
        )
        self._answers: queue.Queue[Any] = queue.Queue()
        threading.Thread(
            target=_read, args=(self._child.stdout, self._answers), daemon=True
        ).start()

    def _last_words(self) -> str:
        assert self._child is not None
        code = self._child.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        self.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the process ended with {how}" + (f": {lines[-1]}" if lines else "")


def _read(lines: Any, answers: "queue.Queue[Any]") -> None:
    try:
        for line in lines:
            answers.put(line)
    except ValueError:  # closed meanwhile
        pass
    answers.put(_END)


def _environment(family: str, threads: int) -> dict[str, str]:
    found = {"OMP_NUM_THREADS": str(threads)}
    if family not in ("torch", "scipy"):
        # Two pools take turns here: threads of one must not spin while the other works.
        found |= {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "0"}
        module = importlib.import_module(f"sparsetile.bench._peers_{family}")
        found |= module.environment(threads)
    return found


def _answer(question: dict[str, Any]) -> Any:
    return _TASKS[question.pop("task")](**question)


def _time(case: dict[str, Any], names: list[str], seconds: float, seed: int) -> Any:
    from sparsetile.bench._bench_case import Case
    from sparsetile.bench._bench_time import as_message, time_family

    return as_message(*time_family(Case(**case), names, seconds=seconds, seed=seed))


def _roofline(dtype: str, threads: int, seconds: float) -> Any:
    from dataclasses import asdict

    import torch

    try:
        from sparsetile.ops.cpu import roofline
    except ImportError as error:
        return {"missing": str(error)}
    return asdict(roofline(getattr(torch, dtype), threads=threads, seconds=seconds))


_TASKS: dict[str, Callable[..., Any]] = {"time": _time, "roofline": _roofline}


def serve(family: str, threads: int) -> None:
    """Answer questions from stdin until it ends."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    # Libraries may print: answers go where stdout went, all else to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    if family == "jax":
        from sparsetile.bench._peers_jax import limit_threads

        limit_threads(threads)
    import torch

    torch.set_num_threads(threads)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
