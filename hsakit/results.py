"""A result is a row: one JSON object a line, appended as it is measured. docs/results.md describes the fields.

A file is written by one process at a time. What a killed process left of its last line is dropped on the next opening;
everything before it stands.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import pathlib
import platform
import stat
from collections.abc import Iterable

import numpy

import hsakit
from hsakit.ffi.errors import HsakitError
from hsakit.scoped import Scoped

SCHEMA = 1
VERIFIED = ("full", "scaled", "none")
LAUNCH = ("gated", "host")

# What changes how the runtimes copy, mask and queue, or what there is, and so belongs to every result.
ENVIRONMENT = (
    "HSA_ENABLE_SDMA",
    "HSA_ENABLE_PEER_SDMA",
    "HSA_ENABLE_SDMA_GANG",
    "HSA_ENABLE_SDMA_RECOMMENDED_ENG",
    "HSA_ENABLE_SDMA_COPY_SIZE_OVERRIDE",
    "HSA_CU_MASK",
    "HSA_ENABLE_INTERRUPT",
    "HSA_REV_COPY_DIR",
    "ROC_GLOBAL_CU_MASK",
    "GPU_MAX_HW_QUEUES",
    "ROC_P2P_SDMA_SIZE",
    "DEBUG_HIP_IGNORE_STREAM_PRIORITY",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "NCCL_NVLS_ENABLE",
    "HSAKIT_GEMM",
    "HSAKIT_NODE_FILE",
    "HSAKIT_SOFTGPU_MODEL",
)

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "schema": int,
    "kind": str,
    "key": str,
    "time": str,
    "parameters": dict,
    "samples": list,
    "verified": str,
    "launch": str,
    "clock": str,
    "packets": dict,
    "versions": dict,
    "environment": dict,
    "error": (str, type(None)),
}


class ResultsError(HsakitError):
    """A file of results that cannot be read, or cannot be continued."""


def environment() -> dict[str, str]:
    """Those of the variables in ENVIRONMENT that are set."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


def versions(**libraries: str) -> dict[str, str]:
    """The versions that stand in a row: ours and Python's, with those of the libraries the caller loaded."""
    return {
        "hsakit": hsakit.__version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        **libraries,
    }


def make_row(
    kind: str,
    key: str,
    *,
    parameters: dict,
    samples: list,
    verified: str,
    launch: str,
    clock: str,
    packets: dict,
    versions: dict,
    error: str | None = None,
) -> dict:
    """A checked row with the schema's version, the time and the environment added.

    samples: every measured repeat, in nanoseconds. packets: {"planned": {...}, "counted": {...} or None}.
    """
    row = {
        "schema": SCHEMA,
        "kind": kind,
        "key": key,
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
        "parameters": parameters,
        "samples": samples,
        "verified": verified,
        "launch": launch,
        "clock": clock,
        "packets": packets,
        "versions": versions,
        "environment": environment(),
        "error": error,
    }
    _check(row, "row")
    return row


def _check(row, where: str) -> None:
    if not isinstance(row, dict) or "schema" not in row:
        raise ResultsError(f"{where}: not a row of results (no schema version)")
    if row["schema"] != SCHEMA:
        raise ResultsError(f"{where}: schema version {row['schema']}; this hsakit reads version {SCHEMA}")
    for name, kind in _FIELDS.items():
        if name not in row:
            raise ResultsError(f"{where}: the row has no {name!r}")
        if not isinstance(row[name], kind):
            raise ResultsError(f"{where}: {name!r} is a {type(row[name]).__name__}")
    for name, valid in (("verified", VERIFIED), ("launch", LAUNCH)):
        if row[name] not in valid:
            raise ResultsError(f"{where}: {name!r} is {row[name]!r}; valid: {', '.join(valid)}")
    if set(row["packets"]) != {"planned", "counted"}:
        raise ResultsError(f"{where}: 'packets' has {sorted(row['packets'])}; it must have planned and counted")


def _parse(data: bytes, path) -> tuple[list[dict], int]:
    """The rows of a file's bytes, and how many of its bytes are whole lines."""
    whole = data.rfind(b"\n") + 1
    rows = []
    for number, line in enumerate(data[:whole].splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ResultsError(f"{where}: not JSON ({error})") from None
        _check(row, where)
        rows.append(row)
    if data[whole:] and not data.startswith(b"{", whole):  # whoever resumes cuts it off
        raise ResultsError(f"{path}: its last line is not the beginning of a row")
    return rows, whole


def read(path) -> list[dict]:
    """The rows of a file, in the order written; a last line without its end is left out."""
    return _parse(pathlib.Path(path).read_bytes(), path)[0]


def latest(rows: Iterable[dict]) -> list[dict]:
    """One row a key, the last written: a resumed sweep measures again what went wrong before."""
    return list({row["key"]: row for row in rows}.values())


class Writer(Scoped):
    """Appends rows to a file; each is on its way to the disk as one line when `write` returns.

    With `resume`, the rows already there are kept, and `done` holds the keys of those without an error. They must come
    from the same libraries, environment and clock: rows that cannot be compared do not share a file. Without it, an
    existing file is set aside as NAME.old.
    """

    def __init__(self, path, resume: bool = False):
        self.path = pathlib.Path(path)
        self.rows: list[dict] = []
        self.done: set[str] = set()
        self.set_aside: pathlib.Path | None = None
        self._fd = -1
        try:
            self._open()
            if not resume and os.fstat(self._fd).st_size:
                self.set_aside = self.path.with_name(self.path.name + ".old")
                os.replace(self.path, self.set_aside)
                self.close()
                self._open()
            self.rows, whole = _parse(self.path.read_bytes(), self.path)
            self.done = {row["key"] for row in latest(self.rows) if row["error"] is None}
            os.ftruncate(self._fd, whole)
            os.lseek(self._fd, 0, os.SEEK_END)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ResultsError(f"{self.path} cannot be written: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise ResultsError(f"{self.path} is no file that rows can be kept in")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ResultsError(f"{self.path} is being written by another process") from None

    def refuse_other_settings(self, clock: str, versions: dict) -> None:
        """Raise ResultsError if rows already there were measured with other libraries, environment or clock.

        Of libraries that only the rows or only `versions` name, nothing is said.
        """
        for row in self.rows:
            same = {name: versions.get(name, value) for name, value in row["versions"].items()}
            now = {"clock": clock, "versions": same, "environment": environment()}
            for name, value in now.items():
                if row[name] != value:
                    raise ResultsError(
                        f"{self.path} was measured with another {name}: {row[name]}, now {value}; "
                        "such rows are not comparable. Name another file"
                    )

    def write(self, row: dict) -> None:
        _check(row, "row")
        line = json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        while line:  # a full disk or a signal may take only part of it
            line = line[os.write(self._fd, line) :]
        self.rows.append(row)
        if row["error"] is None:
            self.done.add(row["key"])

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<results.Writer {self.path}: {len(self.rows)} rows{'' if self._fd >= 0 else ', closed'}>"
