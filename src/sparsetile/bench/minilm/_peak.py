"""Peak memory of a model that is loaded and used, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

from sparsetile.bench._errors import CommandError

_CODE = "from sparsetile.bench.minilm._peak import child; child()"
_STATUS = Path("/proc/self/status")


def peak_bytes(folder: Path | None, *, batch: int, sequence: int, threads: int) -> int:
    """Load a model in a new process, run it once, and ask for the most memory it held.

    Args:
        folder: Of the model; None for a process that imports the libraries only.
        batch: Rows.
        sequence: Tokens of a row.
        threads: Of the process.

    Returns:
        The largest resident size, libraries included.

    Raises:
        CommandError: If the process fails.
    """
    asked = json.dumps([None if folder is None else str(folder), batch, sequence, threads])
    done = subprocess.run(
        [sys.executable, "-c", _CODE, asked], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise CommandError(f"{folder} cannot be measured in a process of its own: {last[0]}")
    return int(done.stdout)


def child() -> None:
    """What the new process does."""
    folder, batch, sequence, threads = json.loads(sys.argv[1])
    import torch
    from transformers import BertModel

    from sparsetile.bench.minilm._contenders import call_of
    from sparsetile.bench.minilm._files import load
    from sparsetile.nn import freeze_

    torch.set_num_threads(threads)
    if folder is not None:
        if (Path(folder) / "sparsetile.json").is_file():
            model = freeze_(load(Path(folder)))
        else:
            model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
        call_of(model)(torch.ones(batch, sequence, dtype=torch.int64))
    print(_peak())


def _peak() -> int:
    # getrusage would count the process that started this one: its size at the start is kept.
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
