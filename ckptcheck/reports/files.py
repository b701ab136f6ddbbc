"""The report of one checkpoint's files: what is wrong with them, what was verified, what a pickle names."""

from typing import Final

from ckptcheck.finding import Result, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.findings import other_findings
from ckptcheck.reports.margin import not_judged
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_CHECKSUMS: Final = {
    "on": "all bytes carry checksums in",
    "off": "no checksums in",
    "in part": "some bytes carry no checksum in",
}


def headline(result: Result) -> str:
    """Return the weightiest finding, or that none fails the check."""
    if result.verdict is Verdict.PASS:
        return "the files are whole" if not result.findings else "no finding fails the check"
    return words.headline(result) if result.findings else "no rule could judge the files"


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Write what stands below the headline."""
    full = page.detail is Detail.ALL
    other_findings(sheet, result, full)
    if result.findings:
        sheet.gap()
    files = entries_of(result, "files")
    if layout := layout_in_words(result.parts.get("layout")):
        count = f", {words.counted(len(files), 'file')}" if len(files) > 1 else ""
        sheet.row("Layout", layout + count)
    if layout:
        sheet.row("Verified", f"{words.size(result.compared.bytes)} held against checksums")
    for kind in dict.fromkeys(words.scalar(one.get("checksums")) for one in files):
        alike = [one for one in files if one.get("checksums") == kind]
        if kind != "on" or full:
            names = [one.get("path") or "the file" for one in alike]
            sheet.row("", words.listed(names, None if full else 4), lead=f"{_CHECKSUMS.get(kind, kind)}: ")
    pickled(sheet, entries_of(result, "globals"), full)
    not_judged(sheet, result, full)


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
