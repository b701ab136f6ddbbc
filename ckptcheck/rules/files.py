"""CK1: what is wrong with the files of one checkpoint."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ckptcheck.conventions.sorting import MODEL_KEYS
from ckptcheck.conventions.weights import is_module
from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.finding import Finding, Json, NotJudged, Place, Severity
from ckptcheck.rules.bloat import MIN_FACTOR, Bloat, bloated
from ckptcheck.rules.known import is_known
from ckptcheck.rules.rule import Evidence, Rule, chosen, rule
from ckptcheck.rules.weights_only import refused
from ckptcheck.rules.words import KEPT, count, kept, names
from ckptcheck.state.raw import Danger, Defect, Flaw, Foreign, Member, RawTree


@dataclass(frozen=True, slots=True)
class Files:
    """What is judged: a checkpoint's files, as far as they could be read.

    Attributes:
        raw: None where the reading ended in an error.
        defects: everything that is wrong, the error that ended the reading among them.
        checked: the stored bytes that carry a checksum and were held against it; None where there are none.
        released: whether the user says that others load it.
    """

    raw: RawTree | None
    defects: tuple[Defect, ...] = ()
    checked: tuple[Member, ...] | None = None
    released: bool = False

    def of(self, flaw: Flaw) -> Iterator[tuple[str, list[Defect]]]:
        """The defects of a kind, by file."""
        by_file: dict[str, list[Defect]] = {}
        for one in self.defects:
            if one.flaw == flaw:
                by_file.setdefault(one.file, []).append(one)
        yield from by_file.items()


WHY_NOT: Final = {
    "raw": "the checkpoint could not be read",
    "checked": "the checkpoint carries no checksums to hold its bytes against",
}


def _defects(files: Files, flaw: Flaw, fix: str) -> Iterator[Evidence]:
    """One finding a file, in the reader's own words."""
    for file, found in files.of(flaw):
        more = f" (and {len(found) - 1} more in this file)" if len(found) > 1 else ""
        numbers: dict[str, Json] = {"defects": kept(one.said for one in found), "count": len(found)}
        numbers |= found[0].numbers
        yield Evidence(f"{_in(file)}{found[0].said}{more}", Place(path=file or None), numbers, fix)


def _in(file: str) -> str:
    return f"{file}: " if file else ""


@rule("CK101", "unreadable-file", Severity.ERROR)
def unreadable_file(files: Files) -> Iterator[Evidence]:
    """A file of the checkpoint cannot be read: it is cut short, or its parts do not fit each other.

    Why: the load raises, or worse, takes what is left for the whole.
    Example: a copy that stopped half way, a disk that was full, a storage that is longer than its member.
    Fix: fetch the file again from where it is whole, or go back to the checkpoint before.
    Limits: bytes that changed in place are told by checksums only (CK102).
    """
    yield from _defects(files, Flaw.UNREADABLE, "copy the file again, or go back to the checkpoint before it")


@rule("CK102", "checksum-mismatch", Severity.ERROR, "checked")
def checksum_mismatch(files: Files) -> Iterator[Evidence]:
    """Stored bytes do not have the checksum that was written with them.

    Why: `torch.load` does not look at checksums, so a flipped bit becomes a wrong weight without a word.
    Example: a bit that flipped on disk or in a transfer, a tool that patched the file.
    Fix: fetch the file again from where it is whole, or go back to the checkpoint before.
    Limits: not judged for bytes without a checksum: safetensors, legacy files, zips saved with checksums off.
    """
    yield from _defects(files, Flaw.CHECKSUM, "copy the file again, or go back to the checkpoint before it")


@rule("CK103", "incomplete-save", Severity.ERROR)
def incomplete_save(files: Files) -> Iterator[Evidence]:
    """The save did not come to its end: a part that its writer always writes is not there.

    Why: the run cannot be resumed from it, and nobody notices before it has to be.
    Example: a zip without data.pkl, `.distcp` files without `.metadata`, a rank's file that is missing, `latest`
    that names a folder that is not there.
    Fix: resume from the checkpoint before; write to a temporary name and rename at the end.
    Limits: parts that a writer leaves out on purpose (a save of the model only) are no half save.
    """
    yield from _defects(files, Flaw.INCOMPLETE, "resume from the checkpoint before it, and delete this one")


@rule("CK104", "unsafe-pickle", Severity.WARNING, "raw")
def unsafe_pickle(files: Files) -> Iterator[Evidence]:
    """A pickle names functions or classes that run code when it is loaded with `torch.load(weights_only=False)`.

    Why: whoever loads it runs what its author chose; and a class that moved or is not installed breaks the load.
    Example: `os.system` in a downloaded checkpoint; an object of your own class among the hyperparameters.
    Fix: save tensors, numbers, strings, lists and dicts only; load files of others with `weights_only=True`.
    Limits: an error where a global can run any code, and for a release (`--for release`) where it is of any other
    package. A module of torch's that is saved whole is told, too. Classes that the common trainers save are not told,
    in a release as a warning; code can hide in the constructor of any class. Where all is harmless and `torch.load`
    refuses it nevertheless by its default since torch 2.6 (numbers and generators of numpy, argparse.Namespace), an
    info says so, of a single file only: in a trainer's folder its own loader knows.
    """
    by_file: dict[str, dict[Danger, list[str]]] = {}
    for one in files.raw.globals if files.raw else ():
        if one.danger is Danger.RUNS_CODE or (
            one.danger is Danger.UNKNOWN and (files.released or not is_known(one.name))
        ):
            by_file.setdefault(one.file, {}).setdefault(one.danger, []).append(one.name)
    for file, found in by_file.items():
        runs, unknown = found.get(Danger.RUNS_CODE, []), found.get(Danger.UNKNOWN, [])
        strange = files.released and not all(map(is_known, unknown))
        said = [f"names {names(runs)}, which can run any code where it is loaded"] if runs else []
        said += [f"holds objects of {names(unknown)}, whose code runs where it is loaded"] if unknown else []
        yield Evidence(
            f"{_in(file)}the pickle {' and '.join(said)}",
            Place(path=file or None),
            {"runs_code": kept(runs), "unknown": kept(unknown)},
            "do not load it outside of a sandbox; ask its author for tensors and plain values" if runs
            else "save plain values in place of these objects, and load with weights_only=True",
            Severity.ERROR if runs or strange else None,
        )  # fmt: skip
    if files.raw is not None and not by_file and files.raw.container in _BY_TORCH_LOAD:
        yield from _whole_module(files.raw) or _refused(files.raw)


_BY_TORCH_LOAD: Final = ("torch-zip", "torch-legacy")
"""Single files that `torch.load` reads with `weights_only=True`, where they name nothing but what it allows."""


def _whole_module(raw: RawTree) -> list[Evidence]:
    """A module of torch's own that is saved whole; those of other packages are told above, or their loaders know."""
    values = [raw.root, *(raw.root.get(key) for key in MODEL_KEYS if isinstance(raw.root, Mapping))]
    whole = [one.class_name for one in values if isinstance(one, Foreign) and is_module(one)]
    own = [name for name in whole if name.startswith("torch.")]
    return [
        Evidence(
            f"the pickle holds a module whole ({names(own)}) in place of its weights: torch.load refuses it by its "
            "default since torch 2.6, and with weights_only=False it runs what the file says",
            Place(),
            {"modules": kept(own)},
            "save module.state_dict(), and build the module before the load",
        )
    ] if own else []  # fmt: skip


def _refused(raw: RawTree) -> Iterator[Evidence]:
    if found := refused(one.name for one in raw.globals):
        yield Evidence(
            f"torch.load refuses the file by its default since torch 2.6, weights_only=True: it names {names(found)}",
            Place(),
            {"refused": kept(found)},
            "save plain numbers (value.item()) and tensors in their place, or load it with weights_only=False",
            Severity.INFO,
        )


@rule("CK105", "storage-bloat", Severity.WARNING, "raw")
def storage_bloat(files: Files) -> Iterator[Evidence]:
    """The file keeps much more of a storage than its tensors use: a view was saved with all it was cut from.

    Why: `torch.save` writes the whole storage behind a view, so files grow many times over.
    Example: `state["row"] = table[3]` saves the table.
    Fix: save `tensor.clone()` in place of a view.
    Limits: told where storages of which less than half is used waste 1 MiB together, or half of the checkpoint.
    Parts of one storage that several tensors use, as in flat buffers, count as used.
    """
    by_file: dict[str, list[Bloat]] = {}
    for one in bloated(files.raw) if files.raw else ():
        by_file.setdefault(one.storage.file, []).append(one)
    for file, found in by_file.items():
        wasted = sum(one.wasted for one in found)
        worst = max(found, key=lambda one: one.wasted)
        yield Evidence(
            f"{_in(file)}{count(found, 'storage')} {'holds' if len(found) == 1 else 'hold'} {wasted} bytes that no "
            f"tensor uses; {worst.path} uses {worst.used} of {worst.storage.nbytes} bytes",
            Place(path=file or None, key=worst.path),
            {
                "wasted_bytes": wasted,
                "storages": [
                    {"storage": one.storage.key, "tensor": one.path, "used_bytes": one.used,
                     "stored_bytes": one.storage.nbytes} for one in found[:KEPT]
                ],
                "factor": MIN_FACTOR,
            },
            "save tensor.clone() in place of a view of a larger tensor",
        )  # fmt: skip


@rule("CK107", "shard-set-inconsistent", Severity.ERROR)
def shard_set_inconsistent(files: Files) -> Iterator[Evidence]:
    """Shards do not fit each other or their index: one too many, overlapping, or of another save.

    Why: the loader mixes two saves, or leaves a part of the model as it was built.
    Example: a save with fewer shards over an older one with more; an index that names a tensor in the wrong file.
    Fix: save into an empty folder, or delete what the index does not name.
    Limits: a shard that is missing is a half save (CK103).
    """
    yield from _defects(files, Flaw.SHARD_SET, "save again into an empty folder, or fetch all shards of one save")


RULES: Final = (
    unreadable_file,
    checksum_mismatch,
    incomplete_save,
    unsafe_pickle,
    storage_bloat,
    shard_set_inconsistent,
)


def judge_files(
    raw: RawTree | None,
    trouble: DamagedCheckpointError | None,
    defects: Sequence[Defect],
    select: Sequence[str] = ("CK",),
    ignore: Sequence[str] = (),
    *,
    released: bool = False,
) -> tuple[tuple[Finding, ...], tuple[NotJudged, ...]]:
    """What the rules say of a checkpoint's files.

    `raw` is what could be read, `trouble` the error that ended the reading, `defects` what verifying the members of
    `raw` found; those that `raw` names itself are added. `released` says that others load it.
    """
    all_defects = [*(raw.defects if raw else ()), *defects]
    if trouble is not None:
        all_defects.append(Defect(Flaw(trouble.flaw), "", str(trouble)))
    unique = {(one.flaw, one.file, one.said): one for one in all_defects}
    carrying = tuple(one for one in raw.members if one.has_checksum) if raw else ()
    files = Files(raw, tuple(unique.values()), carrying or None, released)
    findings: list[Finding] = []
    not_judged: list[NotJudged] = []
    for one in chosen(RULES, select, ignore):
        reason = _why_not(one, files)
        if reason:
            not_judged.append(NotJudged(one.code, reason))
        findings += one.findings(files)
    return tuple(findings), tuple(not_judged)


def _why_not(one: Rule[Files], files: Files) -> str:
    """Why a rule could not look at everything; "" where it could."""
    lacking = [need for need in one.needs if getattr(files, need) is None]
    if lacking:
        return WHY_NOT["raw" if files.raw is None else lacking[0]]
    if "checked" in one.needs and files.raw is not None:
        members = [one for one in files.raw.members if not one.has_checksum and one.nbytes]
        bare = [(one.file or one.name, one.nbytes) for one in members]
        bare += _only_parsed(files.raw, {one.file for one in files.raw.members})
        if bare:
            return f"{sum(nbytes for _, nbytes in bare)} bytes carry no checksum: {names(file for file, _ in bare)}"
    return ""


def _only_parsed(raw: RawTree, held: Collection[str]) -> Iterator[tuple[str, int]]:
    """Files of a checkpoint whose bytes are held against nothing, as JSON, and their sizes; `held` have members."""
    for path, tree in raw.files.items():
        if tree.files and tree.container not in ("zip", "tar"):
            yield from _only_parsed(tree, held)
        elif not tree.members and tree.nbytes and path not in held:
            yield path, tree.nbytes
