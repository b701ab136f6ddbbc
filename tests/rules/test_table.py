"""The table of all rules: codes, names and cards."""

from ckptcheck.rules.table import BY_CODE, RULES


def test_a_code_has_one_name_and_one_card_whatever_it_is_judged_over():
    kinds = {(one.code, one.name, one.card) for one in RULES}
    assert len(kinds) == len(BY_CODE) == len({name for _, name, _ in kinds})


def test_every_card_says_what_why_how_to_fix_and_where_it_ends():
    for one in RULES:
        assert all(f"{word}:" in one.card for word in ("Why", "Example", "Fix", "Limits")), one.code
