"""A folder of the checkpoints of a run, rather than of one: the tracked one is read, else the newest whole one."""

import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.folders import folder_files as names
from ckptcheck.readers.folders.half_saves import lacks_end
from ckptcheck.readers.folders.run_members import LOOSE, counts_something, numbered_files, numbered_folders
from ckptcheck.readers.folders.trackers import LATEST, TRACKERS, tracked
from ckptcheck.readers.reader import Listing
from ckptcheck.readers.reading import Reading, list_folder
from ckptcheck.readers.source import inside, said_of
from ckptcheck.state.raw import RawTensor, RawTree
from ckptcheck.state.tree import flatten

MAX_LISTED: Final = 12

_ROLE: Final = re.compile(
    r"optim|sched|scaler|rng|random|(?<![a-z])ema(?![a-z])|training_args|custom_checkpoint|rank|_states|-of-",
    re.IGNORECASE,
)
"""In the name of a file that is one part of a checkpoint, beside its other parts."""


_PART: Final = re.compile(
    r"(?:mp_rank|tp_rank|pp_rank)_\w+|zero|weights|context|recipe_state|"
    r"(?:optimizer|model|pytorch_model|pytorch_model_fsdp|scheduler|sampler|dataset)(?:_\d+)?"
)
"""A sub-folder that is one part of a checkpoint, beside its other parts."""


class RunFolder:
    """A folder with a tracker, numbered checkpoints, or several loose checkpoint files."""

    def claims(self, listing: Listing) -> bool:
        """Whether nothing of a checkpoint lies at the top but what a run keeps there."""
        top = [label for label in names.at_top(listing) if names.is_weights(label)]
        loose = [label for label in top if LOOSE.fullmatch(label)]
        if len(top) > len(loose) or names.DCP_METADATA in listing.files or _is_trainers_own(listing):
            return False
        if names.RECIPE_STATE in listing.files:
            return False
        if loose:
            parts = any(map(_ROLE.search, loose)) or (len(loose) == 1 and _has_more(listing))
            return "last_checkpoint" in listing.files or not parts
        return any(one in listing.files for one in TRACKERS) or bool(numbered_folders(listing)) or _holds_runs(listing)

    def read(self, listing: Listing, reading: Reading) -> RawTree:
        """The chosen checkpoint; its tree's `path` is its own, and facts["chosen"] says why this one.

        Raises DamagedCheckpointError where the tracker points nowhere or no checkpoint is whole, CheckpointError
        where nothing says which one to take.
        """
        choice = _choose(listing)
        tree = Reading(choice.path, strict=reading.strict).all()
        facts = {
            "chosen": f"{choice.name} in {listing.path}: {choice.reason}",
            "reason": choice.reason,
            "of": choice.count,
            "skipped": choice.skipped,
            "temporary_folders": [one for one in listing.folders if names.TEMPORARY.fullmatch(one)],
        }
        return replace(tree, facts={**tree.facts, **{key: value for key, value in facts.items() if value}})


@dataclass(frozen=True, slots=True)
class _Choice:
    """A checkpoint of a run, one of `count`; `skipped` are newer ones, each with what it lacks."""

    name: str
    path: Path
    reason: str
    count: int
    skipped: tuple[str, ...] = ()


def _choose(listing: Listing) -> _Choice:
    found = tracked(listing)
    if found:
        beside = max(len(numbered_folders(listing)), len(numbered_files(_loose(listing))), 1)
        return _Choice(found.name, found.path, f"named by {found.tracker}", beside)
    loose = _loose(listing)
    numbered = {} if loose else numbered_folders(listing)
    if numbered:
        return _newest(listing, numbered)
    latest = next((one for one in LATEST if one in loose), None)
    if latest and len(loose) > 1:
        return _Choice(latest, inside(listing.path, latest), "the newest by its name", len(loose))
    files = numbered_files(loose)
    if files and _are_one_run(listing, files):
        newest = max(files, key=lambda one: files[one])
        return _Choice(newest, inside(listing.path, newest), "the newest", len(files))
    what, found_names = ("checkpoint files", loose) if loose else ("folders of checkpoints", _holders(listing))
    if len(found_names) == 1:
        return _Choice(found_names[0], inside(listing.path, found_names[0]), "the only one", 1)
    raise CheckpointError(f"{listing.path}: holds {len(found_names)} {what}: name one of them: {_list(found_names)}")


def _are_one_run(listing: Listing, files: dict[str, int]) -> bool:
    """Whether numbered files are saves of one thing: by what their numbers count, else as two of them hold the same.

    Files that are the parts of one checkpoint hold unlike keys. Files 1 to n of weights alone may be several models.
    """
    if all(map(counts_something, files)):
        return True
    held: list[set[str]] = []
    alone = sorted(files.values()) in ([*range(len(files))], [*range(1, len(files) + 1)])
    for name in sorted(files, key=lambda one: files[one])[-2:]:
        try:
            root = Reading(inside(listing.path, name), strict=False).all().root
        except DamagedCheckpointError:
            return True  # it is judged, and told as damaged
        leaves = dict(flatten(root))
        if alone and all(isinstance(leaf, RawTensor) for leaf in leaves.values()):
            return False
        held.append({*leaves})
    return 2 * len(held[0] & held[1]) >= max(map(len, held))


def _loose(listing: Listing) -> list[str]:
    return [label for label in names.at_top(listing) if LOOSE.fullmatch(label)]


def _newest(listing: Listing, numbered: dict[str, tuple[str, int]]) -> _Choice:
    families = sorted({family for family, _ in numbered.values()})
    if len(families) > 1:
        raise CheckpointError(
            f"{listing.path}: holds checkpoints under several kinds of names: name one of them: {_list(list(numbered))}"
        )
    held: dict[str, dict[str, Path]] = {}
    for label, path in listing.files.items():
        folder, _, inner = label.partition("/")
        held.setdefault(folder, {})[inner] = path
    skipped: list[str] = []
    for name in sorted(numbered, key=lambda one: numbered[one][1], reverse=True):
        lacking = _lacking(listing, name, held.get(name, {}))
        if not lacking:
            reason = "the newest" if not skipped else "the newest that is whole"
            return _Choice(name, inside(listing.path, name), reason, len(numbered), tuple(skipped))
        skipped.append(f"{name}: {lacking}")
    name = max(numbered, key=lambda one: numbered[one][1])
    return _Choice(name, inside(listing.path, name), "the newest, and none is whole", len(numbered))


def _lacking(listing: Listing, name: str, held: dict[str, Path]) -> str:
    """Why a checkpoint of the run, which holds these files, is not to be taken; "" where nothing speaks against it."""
    try:
        path = inside(listing.path, name)
        # What lies behind a link is not in the listing.
        return lacks_end(list_folder(path) if path.is_symlink() else Listing(path, held, {}))
    except CheckpointError as trouble:
        return said_of(trouble, listing.path / name)


def _holders(listing: Listing) -> list[str]:
    """The direct sub-folders with a checkpoint somewhere in them."""
    held = [label for label in names.visible(listing) if "/" in label and names.is_stored_state(label)]
    found = dict.fromkeys(PurePosixPath(label).parts[0] for label in held)
    return [name for name in found if not names.TEMPORARY.fullmatch(name)]


def _holds_runs(listing: Listing) -> bool:
    """Whether all that belongs to a checkpoint lies in sub-folders that are no parts of one."""
    holders = _holders(listing)
    return (
        bool(holders)
        and not any(map(names.is_candidate, names.at_top(listing)))
        and not all(map(_PART.fullmatch, holders))
    )


def _is_trainers_own(listing: Listing) -> bool:
    """Whether a trainer_state.json is that of one checkpoint: the Trainer leaves one beside its checkpoints, too."""
    runs = any(name.startswith("checkpoint-") for name in numbered_folders(listing))
    return "trainer_state.json" in listing.files and not runs


def _has_more(listing: Listing) -> bool:
    """Whether something beside one file at the top belongs to a checkpoint."""
    return sum(map(names.is_candidate, names.visible(listing))) > 1 or bool(_holders(listing))


def _list(found: list[str]) -> str:
    more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    return ", ".join(sorted(found)[:MAX_LISTED]) + more
