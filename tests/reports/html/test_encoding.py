import base64
import json
import math
import struct

import pytest

from ckptcheck.reports.html.encoding import in_script, numbers, table
from tests.reports.html.made import HOSTILE


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_in_data_can_end_a_script_element_or_a_line(name):
    told = in_script({name: [name]})
    assert not set("<>&\u2028\u2029\x7f\x00") & set(told)
    assert told.isascii()
    assert json.loads(told) == {name: [name]}


def test_numbers_are_told_to_the_bit():
    values = [0.0, 1.5e-310, 0.1, 1 / 3, 1.7976931348623157e308, 2**53 + 2]
    found = struct.unpack("<6d", base64.b64decode(numbers(values)))
    assert [struct.pack("<d", one) for one in found] == [struct.pack("<d", one) for one in values]


def test_what_is_not_known_is_a_nan_and_what_is_nan_is_less_than_nothing():
    unknown, infinite, odd, other = struct.unpack("<4d", base64.b64decode(numbers([None, "inf", "nan", math.nan])))
    assert math.isnan(unknown)
    assert (infinite, odd, other) == (math.inf, -1.0, -1.0)


def test_narrow_numbers_have_four_digits_of_the_greatest_distances():
    found = struct.unpack("<3f", base64.b64decode(numbers([3, 2**64 - 1, None], wide=False)))
    assert found[0] == 3
    assert found[1] == pytest.approx(2**64, rel=1e-6)
    assert math.isnan(found[2])


def test_rows_come_back_from_columns_and_a_text_is_told_once():
    rows = [
        {"name": "a", "value": 1.5, "kind": None},
        {"name": "b", "value": None},
        {"name": "a", "value": [1], "more": "x"},
    ]
    told = table(rows)
    assert told["texts"]["name"] == ["a", "b"]
    assert "kind" not in told["columns"]
    back = [
        {name: told["texts"][name][value] if name in told["texts"] and value is not None else value
         for name, value in ((name, column[place]) for name, column in told["columns"].items())}
        for place in range(told["rows"])
    ]  # fmt: skip
    assert [{name: value for name, value in one.items() if value is not None} for one in back] == [
        {name: value for name, value in one.items() if value is not None} for one in rows
    ]
