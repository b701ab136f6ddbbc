"""The cards of rules: every code of the table has a whole one, and every public report belongs to a code."""

import re
from urllib.parse import urlsplit

import pytest

from ckptcheck.finding import Severity
from ckptcheck.rules.card import card_of, public_reports
from ckptcheck.rules.rule import rule
from ckptcheck.rules.table import BY_CODE

WHOLE = """What it finds, over
two lines.

    Why: the reason: with a colon
    and a second line.
    Example: `x = 1`.
    Fix: do it.
    Limits: none.
"""


def made(card: str):
    def check(subject):
        yield from ()

    check.__doc__ = card
    return rule("CK999", "some-rule", Severity.ERROR)(check)


@pytest.mark.parametrize("code", BY_CODE)
def test_a_rule_has_a_whole_card_of_sentences(code):
    card = card_of(BY_CODE[code])
    for part in (card.what, card.why, card.example, card.fix, card.limits):
        assert len(part) > 5
        assert part.endswith(".")
        assert part == " ".join(part.split())
        assert part[0] == part[0].upper()


def test_a_part_begins_at_its_name_and_goes_on_to_the_next():
    card = card_of(made(WHOLE))
    assert card.what == "What it finds, over two lines."
    assert card.why == "The reason: with a colon and a second line."
    assert card.example == "`x = 1`."
    assert (card.fix, card.limits, card.reports) == ("Do it.", "None.", ())


@pytest.mark.parametrize(("card", "said"), [
    (WHOLE.replace("Fix:", "Repair:"), "the card of CK999 has no part Fix"),
    (WHOLE + "    Fix: do it again.\n", "the card of CK999 has two parts Fix"),
    ("What it finds.", "the card of CK999 has no part Why"),
])  # fmt: skip
def test_a_card_that_is_not_whole_is_refused(card, said):
    with pytest.raises(ValueError, match=said):
        card_of(made(card))


def test_public_reports_are_links_with_a_phrase_each_and_belong_to_a_code():
    told = public_reports()
    assert set(told) <= set(BY_CODE)
    assert card_of(BY_CODE["CK402"]).reports == told["CK402"]
    for code, reports in told.items():
        assert 1 <= len(reports) <= 4, code
        assert len({one.url for one in reports}) == len(reports)
        for one in reports:
            where = urlsplit(one.url)
            assert (where.scheme, where.netloc) in {("https", "github.com"), ("https", "discuss.pytorch.org")}
            assert re.fullmatch(r"/[\w.-]+/[\w.-]+/(issues|pull)/\d+|/t/[\w-]+/\d+", where.path), one.url
            assert 15 < len(one.said) <= 110
            assert not one.said.endswith(".")
