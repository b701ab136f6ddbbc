import pytest

from ckptcheck.finding import Place
from ckptcheck.reports import words
from ckptcheck.reports.page import escaped


@pytest.mark.parametrize(("count_bytes", "said"), [
    (0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (123456, "120.6 KiB"),
    (5 * 2**30, "5.0 GiB"), (2**52, "4096.0 TiB"),
])  # fmt: skip
def test_sizes_are_in_binary_units(count_bytes, said):
    assert words.size(count_bytes) == said


@pytest.mark.parametrize(("value", "said"), [
    (None, "none"), (True, "yes"), (3, "3"), (1.23456e-7, "1.23e-07"), ([0, 17], "(0, 17)"), ([], "()"),
    ({"lr": 0.1}, "lr 0.1"), ("nan", "nan"), (float("inf"), "inf"),
])  # fmt: skip
def test_scalars_are_short(value, said):
    assert words.scalar(value) == said


def test_a_magnitude_says_how_many_where_and_how_far():
    numbers = {"differing": 3, "numel": 4096, "max_abs": 1.2e-7, "max_abs_at": [0, 17], "rel_l2": None, "max_ulp": 1}
    assert words.magnitude(numbers) == "3 of 4096 differ, max abs 1.2e-07 at (0, 17), max ULP 1"


def test_the_distance_of_a_single_value_is_an_offset():
    assert words.magnitude({"differing": 1, "numel": 1, "max_abs": 4.0, "max_abs_at": []}) == "off by 4"


@pytest.mark.parametrize(("policy", "said"), [
    ({"name": "exact", "rtol": 0.0, "atol": 0.0}, "byte for byte"),
    ({"name": "exact", "rtol": 1e-5, "atol": 0.0}, "computed values within rtol 1e-05"),
    ({"name": "state-exact", "rtol": 0.0, "atol": 0.0}, "state byte for byte, the rest within measured noise"),
    (None, ""), ("exact", ""),
])  # fmt: skip
def test_by_which_measure_things_are_equal_is_said(policy, said):
    assert words.policy(policy) == said


def test_a_magnitude_of_nulls_says_nothing():
    assert words.magnitude({"differing": None, "max_abs": None, "reason": "only digests"}) == ""


def test_the_first_rank_goes_without_saying():
    assert words.binding(Place(optimizer=0, group=0, rank=0)) == "optimizer 0, group 0"
    assert words.binding(Place(rank=3)) == "rank 3"


@pytest.mark.parametrize(("raw", "safe"), [
    ("blocks.0.fc.weight", "blocks.0.fc.weight"), ("größe", "größe"), ("a\nb", r"a\nb"), ("\x1b[2J", r"\x1b[2J"),
    ("\x9b", r"\x9b"), ("\u202eabc", r"\u202eabc"), ("\u200b", r"\u200b"), ("\u2028", r"\u2028"),
    ("\udc80", r"\udc80"), ("\U000e0041", r"\U000e0041"),
])  # fmt: skip
def test_what_could_steer_a_terminal_is_spelled_out(raw, safe):
    assert escaped(raw) == safe
