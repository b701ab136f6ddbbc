"""What is in a checkpoint, from its description alone: bytes are read for step counters and for digests only."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ckptcheck.comparison.checkpoint_diff import CONTENT_SECTIONS
from ckptcheck.errors import UsageError
from ckptcheck.finding import Json, Result, Verdict
from ckptcheck.progress import Progress
from ckptcheck.rules.bloat import used_bytes
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Danger, RawTensor, RawTree
from ckptcheck.state.scalars import number_in
from ckptcheck.state.training_state import Entry
from ckptcheck.verdict.contents import Item, in_result, items_of
from ckptcheck.verdict.digests import CHUNK_BYTES, content_digest, text_digest
from ckptcheck.verdict.lacking import held, lacking
from ckptcheck.verdict.optimizers import groups_part, optimizers_part

MAX_NAMES_BYTES: Final = 64 << 20
MAX_FETCHED: Final = 64
"""Step counters and hyperparameters that are read from tensors in the file."""
MAX_TEXT: Final = 200
"""Characters of a plain value; of longer ones the beginning and a digest are told."""


def inspect_checkpoint(
    path: Path, names: Sequence[str] | None = None, *, digests: bool = False, progress: Progress | None = None
) -> Result:
    """Describe the checkpoint at `path`; with `digests` every tensor is read, and told by a digest of its bytes.

    Raises CheckpointError where it is none that we read, DamagedCheckpointError where bytes do not fit each other.
    """
    from ckptcheck.conventions.explaining import explain
    from ckptcheck.readers.reading import read_raw

    raw = read_raw(path)
    result = described(explain(raw, names=names), digests=digests, progress=progress)
    raw.check_unchanged()
    return result


def described(checkpoint: Checkpoint, *, digests: bool = False, progress: Progress | None = None) -> Result:
    """The result of inspecting a checkpoint that was explained."""
    raw, state = checkpoint.raw, checkpoint.state
    items = list(items_of(checkpoint))
    sections: dict[str, list[Item]] = {}
    for item in items:
        sections.setdefault(item.section, []).append(item)
    counters = _counters(items)
    parts: dict[str, Json] = {
        "path": str(raw.path),
        "layout": layout_of(checkpoint),
        "bytes": raw.nbytes,
        "step": state.step,
        "recorded_step": checkpoint.recorded_step,
        "world_size": checkpoint.world_size,
        "sections": [_summary(name, sections[name]) for name in CONTENT_SECTIONS if name in sections],
        "optimizers": optimizers_part(checkpoint, counters),
        "groups": groups_part(checkpoint, counters),
        "holds": [*held(state, sections)],
        "lacks": [*lacking(state, sections)],
        "tensors": _tensors(items, counters),
        "values": [_value(item) for item in items if item.spec is None],
        "storage_bloat": bloat_part(raw),
        "globals": globals_part(raw),
        "stripped": [*checkpoint.stripped],
        "models": [*checkpoint.models],
        "unrecognised": [*checkpoint.unrecognised],
        "notes": [*checkpoint.notes],
    }
    if digests:
        _add_digests(parts["tensors"], [item for item in items if item.spec is not None], raw, progress)
    return Result(command="inspect", verdict=Verdict.PASS, parts=parts)


def layout_of(checkpoint: Checkpoint) -> dict[str, Json]:
    """How the bytes lie, and who wrote them."""
    return {"container": checkpoint.raw.layout, "convention": checkpoint.convention}


def globals_part(raw: RawTree) -> list[Json]:
    """What the pickles name beyond tensors, containers and numbers."""
    told = [one for one in raw.globals if one.danger is not Danger.PLAIN]
    return [{"file": one.file, "name": one.name, "danger": one.danger.value, "count": one.count} for one in told]


def bloat_part(raw: RawTree) -> list[Json]:
    """Storages that are longer than what tensors use of them, the most wasteful first."""
    wasteful = [(one, used) for one, used in used_bytes(raw).items() if used < one.nbytes]
    wasteful.sort(key=lambda pair: pair[1] - pair[0].nbytes)
    return [{"file": one.file, "key": one.key, "bytes": one.nbytes, "used_bytes": used} for one, used in wasteful]


def names_in(path: Path) -> list[str]:
    """Parameter names from a file, one a line; empty lines and lines that begin with # are left out.

    Raises UsageError where it cannot be read, is no text, or names a parameter twice.
    """
    try:
        if path.stat().st_size > MAX_NAMES_BYTES:
            raise UsageError(f"--names {path}: is larger than {MAX_NAMES_BYTES} bytes: give one parameter name a line")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as trouble:
        raise UsageError(f"--names {path}: cannot be read ({trouble.strerror or trouble})") from trouble
    except UnicodeDecodeError as trouble:
        raise UsageError(f"--names {path}: is no UTF-8 text: give one parameter name a line") from trouble
    names = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or not names:
        said = f"names {twice[0]!r} twice" if twice else "holds no name"
        raise UsageError(f"--names {path}: {said}: give one parameter name a line, in the optimizer's order")
    return names


def _summary(section: str, items: Sequence[Item]) -> Json:
    tensors = [item for item in items if item.spec is not None]
    dtypes = Counter(item.spec.dtype for item in tensors if item.spec is not None)
    return {
        "section": section,
        "tensors": len(tensors),
        "values": len(items) - len(tensors),
        "bytes": sum(item.entry.nbytes for item in tensors),
        "dtypes": dict(dtypes.most_common()),
    }


def _counters(items: Iterable[Item]) -> dict[int, Any]:
    """Step counters and hyperparameters that are tensors of one element: their numbers by the identity of the entry.

    At most `MAX_FETCHED` are read.
    """
    numbers: dict[int, Any] = {}
    fetched = 0
    for item in items:
        entry = item.entry
        is_wanted = item.section == "optimizer" and (item.key == "step" or item.name is None)
        if not is_wanted or entry.spec is None or entry.spec.numel != 1:
            continue
        if entry.value is None and entry.ref is not None and fetched < MAX_FETCHED:
            fetched += 1
            numbers[id(entry)] = number_in(entry.ref)
    return {key: number for key, number in numbers.items() if number is not None}


def _tensors(items: Sequence[Item], counters: Mapping[int, Any]) -> list[Json]:
    ties = _ties(items)
    return [_tensor(item, ties, counters) for item in items if item.spec is not None]


def _tensor(item: Item, ties: Mapping[Any, Sequence[str]], counters: Mapping[int, Any]) -> Json:
    spec, ref = item.spec, item.ref
    assert spec is not None
    raw = ref if isinstance(ref, RawTensor) else None
    same = ties.get(raw.place, ()) if raw is not None else ()
    requires_grad = item.requires_grad
    if requires_grad is None and raw is not None and item.section == "model":
        requires_grad = raw.requires_grad
    value = item.entry.value if item.entry.value is not None else counters.get(id(item.entry))
    return {
        "section": item.section,
        "name": item.name,
        "key": item.key,
        "dtype": spec.dtype,
        "shape": [*spec.shape],
        "bytes": spec.nbytes,
        "device": raw.device if raw is not None and raw.device else None,
        "requires_grad": requires_grad,
        "optimizer": item.optimizer,
        "group": item.group,
        "tied": [*sorted({*item.aliases, *same} - {_called(item)})],
        "storage": _storage(raw),
        "value": value if spec.numel == 1 else None,
    }


def _storage(raw: RawTensor | None) -> Json:
    if raw is None or raw.storage is None:
        return None
    return {"file": raw.storage.file, "key": raw.storage.key, "offset": raw.offset}


def _ties(items: Iterable[Item]) -> dict[Any, list[str]]:
    """The names of tensors that are the same elements of one storage, by their place; alone ones are left out."""
    places: dict[Any, list[str]] = defaultdict(list)
    for item in items:
        if isinstance(item.ref, RawTensor) and item.ref.place is not None:
            places[item.ref.place].append(_called(item))
    return {place: names for place, names in places.items() if len(names) > 1}


def _called(item: Item) -> str:
    name = " / ".join(one for one in (item.name, item.key) if one is not None)
    return name if item.section == "model" else f"{item.section}: {name}"


def _value(item: Item) -> Json:
    shown: Json
    shown, digest = _shown(item.entry)
    return {
        "section": item.section,
        "name": item.name,
        "key": item.key,
        "value": shown,
        "optimizer": item.optimizer,
        "group": item.group,
        "digest": digest,
    }


def _shown(entry: Entry) -> tuple[Json, str | None]:
    value = in_result(entry.value)
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[: MAX_TEXT - 3]}...", text_digest(value)
    return value, None


def _add_digests(rows: Any, items: Sequence[Item], raw: RawTree, progress: Progress | None) -> None:
    buffer = bytearray(CHUNK_BYTES)
    total = sum(item.entry.nbytes for item in items) >> 20
    done = 0
    for row, item in zip(rows, items, strict=True):
        row["digest"] = content_digest(item.ref, buffer) if item.ref is not None else None
        if row["value"] is None and item.ref is not None:  # a listing must not depend on how many were read before
            row["value"] = number_in(item.ref)
        done += item.entry.nbytes
        if progress is not None:
            progress.update(str(raw.path), "MiB read", done >> 20, total)
