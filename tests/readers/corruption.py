"""Random damage to real checkpoints: `python -m tests.readers.corruption --count 2000 --seed 0`.

Every case must end in time and in bounded memory in one line of refusal, in differences, or in "same content" where
the content truly is the same. `--case N` does one again and keeps its files.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.readers.exploring import Outcome, Watch
from tests.readers.truly_equal import differing
from tests.samples import CHECKPOINTS

LAYOUTS = (
    "01_torch_save/zip_full.pt",
    "01_torch_save/legacy_full.pt",
    "02_torch_edge/legacy_tar.pt",
    "04_hf_trainer/checkpoint-4",
    "06_accelerate_safe/checkpoint_1",
    "07_lightning/pl.ckpt",
    "08_dcp/dcp_fsdp2",
    "10_deepspeed/z1_fp32",
    "13_sb3/sb3_ppo.zip",
    "15_safetensors_sharded/sharded",
)

Damage = Callable[[bytes, random.Random], bytes]


def truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 8))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _block(content: bytes, chance: random.Random) -> tuple[int, int]:
    length = min(chance.choice((1, 4, 64, 512, 4096)), len(content))
    start = chance.randrange(len(content) - length + 1)
    return start, start + length


def overwrite(content: bytes, chance: random.Random) -> bytes:
    start, stop = _block(content, chance)
    return content[:start] + chance.randbytes(stop - start) + content[stop:]


def zero(content: bytes, chance: random.Random) -> bytes:
    start, stop = _block(content, chance)
    return content[:start] + bytes(stop - start) + content[stop:]


def swap(content: bytes, chance: random.Random) -> bytes:
    start, stop = _block(content, chance)
    other = chance.randrange(len(content) - (stop - start) + 1)
    changed = bytearray(content)
    changed[start:stop] = content[other : other + stop - start]
    changed[other : other + stop - start] = content[start:stop]
    return bytes(changed)


def repeat(content: bytes, chance: random.Random) -> bytes:
    start, stop = _block(content, chance)
    return content[:stop] + content[start:]


def cut_out(content: bytes, chance: random.Random) -> bytes:
    start, stop = _block(content, chance)
    return content[:start] + content[stop:]


DAMAGES: tuple[Damage, ...] = (truncate, flip, flip, overwrite, zero, swap, repeat, cut_out)
FOLDER_DAMAGES = ("delete", "exchange")


@dataclass(frozen=True)
class Case:
    """What was done to which layout, and how it ended. `wrong` is "" where it ended as it must."""

    number: int
    layout: str
    damage: str
    outcome: Outcome
    wrong: str


def damaged_copy(number: int, seed: int, target: Path) -> tuple[str, str]:
    """Write a damaged copy of a layout to `target`; returns the layout and what was done to it."""
    chance = random.Random(f"{seed}/{number}")
    layout = LAYOUTS[number % len(LAYOUTS)]
    source = CHECKPOINTS / layout
    if source.is_file():
        damage = chance.choice(DAMAGES)
        target.write_bytes(damage(source.read_bytes(), chance))
        return layout, damage.__name__
    shutil.copytree(source, target)
    files = sorted(one for one in target.rglob("*") if one.is_file())
    file = chance.choice(files)
    name = chance.choice([*(one.__name__ for one in DAMAGES), *FOLDER_DAMAGES])
    if name == "delete":
        file.unlink()
    elif name == "exchange":
        other = chance.choice(files)
        contents = file.read_bytes(), other.read_bytes()
        file.write_bytes(contents[1])
        other.write_bytes(contents[0])
        name += f" {other.name} and"
    else:
        damage = next(one for one in DAMAGES if one.__name__ == name)
        file.write_bytes(damage(file.read_bytes(), chance))
    return layout, f"{name} {file.relative_to(target)}"


def run_case(watch: Watch, number: int, seed: int, folder: Path) -> Case:
    """Damage a layout and see what the tool makes of it; its copy is removed unless it ended wrong."""
    target = folder / f"case_{number}"
    layout, damage = damaged_copy(number, seed, target)
    outcome = watch("corrupted", CHECKPOINTS / layout, target)
    wrong = ""
    if not outcome.is_proper:
        wrong = outcome.said or outcome.kind
    elif outcome.found.get("same"):
        parts = differing(CHECKPOINTS / layout, target)
        wrong = f"said to be the same, but differs in {parts}" if parts else ""
    if outcome.said.count(str(target)) > 1 or outcome.found.get("path_twice"):
        wrong = f"names its path twice: {outcome.found.get('path_twice') or outcome.said}"
    if not wrong:
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    return Case(number, layout, damage, outcome, wrong)


def ending(case: Case) -> str:
    """One word for how it ended."""
    if case.wrong:
        return "WRONG"
    if case.outcome.kind != "fine":
        return case.outcome.kind
    return "same" if case.outcome.found["same"] else "differs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="corruption-"))
    watch = Watch(folder)
    numbers = range(options.count) if options.case is None else [options.case]
    cases = []
    for number in numbers:
        cases.append(run_case(watch, number, options.seed, folder))
        if cases[-1].wrong:
            print(f"case {number}: {cases[-1].layout}, {cases[-1].damage}: {cases[-1].wrong}\n  {cases[-1].outcome}")
    watch.close()
    for layout in LAYOUTS:
        print(f"{layout:36}", dict(sorted(Counter(ending(one) for one in cases if one.layout == layout).items())))
    print(f"longest {max(one.outcome.seconds for one in cases):.2f} s, "
          f"most {max(one.outcome.rss_bytes for one in cases) >> 20} MiB")  # fmt: skip
    left = sorted(one.name for one in folder.iterdir())
    print(f"{sum(bool(one.wrong) for one in cases)} of {len(cases)} ended wrong; left in {folder}: {left}")
    return int(any(one.wrong for one in cases) or any(not one.startswith("case_") for one in left))


if __name__ == "__main__":
    sys.exit(main())
