"""The rows about a checkpoint's files: which were looked at, what was verified, what a pickle names."""

from typing import Final

from ckptcheck.finding import Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.sheet import Sheet

_CHECKSUMS: Final = {
    "on": "all bytes carry checksums in",
    "off": "only parsed, no checksums in",
    "in part": "some bytes carry no checksum in",
}


def whole(result: Result) -> str:
    """Say that nothing is wrong, and no more than was held against checksums."""
    if all(one.get("checksums") == "on" for one in entries_of(result, "files")):
        return "the files are whole"
    carried = "some bytes carry no checksum" if _verified_bytes(result) else "no byte carries a checksum"
    return f"no damage found, {carried}"


def layout(sheet: Sheet, result: Result) -> None:
    """Say how the bytes lie and who wrote them."""
    files = entries_of(result, "files")
    if told := layout_in_words(result.parts.get("layout")):
        sheet.row("Layout", told + (f", {words.counted(len(files), 'file')}" if len(files) > 1 else ""))


def verified(sheet: Sheet, result: Result, full: bool) -> None:
    """Say what was held against checksums, what was not read, and what pickles name."""
    files = entries_of(result, "files")
    if layout_in_words(result.parts.get("layout")):
        sheet.row("Verified", f"{words.size(_verified_bytes(result))} held against checksums")
    for kind in dict.fromkeys(words.scalar(one.get("checksums")) for one in files):
        alike = [one for one in files if one.get("checksums") == kind]
        if kind != "on" or full:
            names = [one.get("path") or "the file" for one in alike]
            sheet.row("", words.listed(names, None if full else 4), lead=f"{_CHECKSUMS.get(kind, kind)}: ")
    behind(sheet, files)
    pickled(sheet, entries_of(result, "globals"), full)


def behind(sheet: Sheet, files: list[Entry]) -> None:
    """Say which files have more bytes than belong to them; whoever loads them does not see these."""
    label = "Not read"
    for one in files:
        nbytes = one.get("trailing_bytes")
        if isinstance(nbytes, int):
            sheet.row(
                label, words.scalar(one.get("path")) or "the file", lead=f"{words.size(nbytes)} behind the end of "
            )
            label = ""


def checked(sheet: Sheet, result: Result) -> None:
    """Say which checkpoint was looked at, and where it was chosen from a run's, why this one."""
    path, chosen = words.scalar(result.parts.get("path")), result.parts.get("chosen")
    if not isinstance(chosen, dict):
        sheet.row("Checked", path)
        return
    count, said = chosen.get("of"), words.scalar(chosen.get("reason"))
    if isinstance(count, int) and count > 1:
        joint = " of" if said == "the newest" else ", one of"
        said = f"{said}{joint} {count}; name another to check it"
    sheet.row("Checked", f"{path}, {said}")
    skipped = chosen.get("skipped")
    for one in skipped if isinstance(skipped, list) else []:
        sheet.row("", words.scalar(one), lead="passed over: ")


def layout_in_words(layout: object) -> str:
    """Return the container and who wrote it: "folder, hf-trainer"; empty where it could not be read."""
    if not isinstance(layout, dict):
        return ""
    return ", ".join(words.scalar(layout[key]) for key in ("container", "convention") if layout.get(key))


def pickled(sheet: Sheet, named: list[Entry], full: bool) -> None:
    """Say what the pickles name beyond tensors, containers and numbers; nothing of it was imported."""
    label = "Pickle names"
    for danger, said, most in (("runs-code", "what can run any code: ", 6), ("unknown", "classes and functions: ", 2)):
        names = list(dict.fromkeys(one.get("name") for one in named if one.get("danger") == danger))
        if names:
            style = "red" if danger == "runs-code" else ""
            sheet.row(label, words.listed(names, None if full else most), lead=said, lead_style=style)
            label = ""


def _verified_bytes(result: Result) -> int:
    nbytes = result.parts.get("verified_bytes")
    return nbytes if isinstance(nbytes, int) else result.compared.bytes
