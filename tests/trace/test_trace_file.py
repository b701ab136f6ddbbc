"""The trace file: what goes in comes out, whatever ends it, and what is no trace is refused."""

import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ckptcheck.errors import OutputError, TraceError
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.file import MAX_TEXT, VERSION, Trace, TraceWriter, open_traces, trace_file
from ckptcheck.trace.items import NONE, NONZERO, ZERO, Item, Sample

HEADER = {"digest": "xxh3_128", "rank": 0, "flags": {"threads": 2}, "command": ["a", "b"]}
F32 = TensorSpec("float32", (2, 3))
SCALAR = TensorSpec("float32", ())


def written(folder, *moments, clean=True):
    path = folder / "rank-0.trace"
    writer = TraceWriter(path, HEADER)
    for step, moment, samples in moments:
        writer.write(step, moment, samples)
    writer.close(clean)
    return path


def some(number):
    return [(Item("param", f"p{place}"), Sample(F32, bytes([number, place]) * 8, norm=1.5)) for place in range(3)]


SAMPLES = {
    Item("param", "a.weight"): Sample(F32, b"1" * 16, norm=0.5),
    Item("param", "a.bias"): Sample(F32, b"2" * 16, norm=math.nan),
    Item("param", "b.bias"): Sample(F32, b"3" * 16, norm=math.inf),
    Item("param", "empty"): Sample(TensorSpec("float32", (0,)), b"0" * 16, norm=0.0),
    Item("grad", "a.weight"): Sample(None, None, NONE),
    Item("grad", "a.bias"): Sample(F32, b"4" * 16, ZERO, 0.0),
    Item("grad", "a.bias", part=1): Sample(F32, b"5" * 16, NONZERO, 1e-30),
    Item("state", "a.weight", "exp_avg", 1): Sample(F32, b"6" * 16, norm=2.0),
    Item("state", "a.weight", "step", 1): Sample(SCALAR, b"7" * 16, value=3.0),
    Item("state", "a.weight", "flag", 1): Sample(TensorSpec("bool", ()), b"7" * 16, value=True),
    Item("loss", "returned"): Sample(SCALAR, b"8" * 16, value=math.nan),
    Item("loss", "backward"): Sample(SCALAR, b"9" * 16, value=-math.inf),
    Item("hyper", "", "lr", 0, 2): Sample(None, b"a" * 16, value=0.1),
    Item("hyper", "", "betas", 0, 2): Sample(None, b"b" * 16, value="(0.9, 0.999)"),
    Item("hyper", "", "nesterov", 0, 2): Sample(None, b"c" * 16, value=False),
    Item("hyper", "", "count", 0, 2): Sample(None, b"c" * 16, value=-(2**53) + 1),
    Item("hyper", "", "name", 0, 2): Sample(None, b"c" * 16, value="nan"),
    Item("extra", "größe 'x'\0\n"): Sample(None, b"d" * 16, value="ü\0"),
    Item("updates", optimizer=1): Sample(None, b"e" * 16, value=2),
}


def test_samples_come_back_as_they_were_written(tmp_path):
    trace = Trace(written(tmp_path, (1, "load", []), (1, "step", SAMPLES.items())))
    seen = trace.samples(1, "step")
    assert {item: repr(sample) for item, sample in seen.items()} == {item: repr(one) for item, one in SAMPLES.items()}
    assert set(trace.tensors()) == {(item, sample.spec) for item, sample in SAMPLES.items()}
    assert trace.samples(1, "load") == {} and trace.samples(9, "step") == {}


def test_the_header_comes_back_and_a_later_value_wins(tmp_path):
    path = tmp_path / "x.trace"
    writer = TraceWriter(path, HEADER)
    writer.set_header({"rank": 3, "late": [1]})
    writer.write(1, "step", some(1))
    writer.close(True)
    assert Trace(path).header == {**HEADER, "rank": 3, "late": [1], "ended": "clean"}


def test_moments_and_steps_are_those_that_were_written(tmp_path):
    moments = [(2, "load", some(0)), (3, "step", some(1)), (4, "step", some(2)), (4, "saved", some(2)), (4, "end", [])]
    trace = Trace(written(tmp_path, *moments))
    assert list(trace.moments) == [(2, "load"), (3, "step"), (4, "step"), (4, "saved"), (4, "end")]
    assert trace.steps == [3, 4] and trace.ended


def test_digests_are_read_alone(tmp_path):
    steps = [(step, "step", some(step)) for step in (1, 2, 3)] + [(3, "end", some(9))]
    trace = Trace(written(tmp_path, *steps))
    item = Item("param", "p1")
    assert trace.digest(2, "step", item) == bytes([2, 1]) * 8
    assert trace.digest(7, "step", item) is None and trace.digest(2, "step", Item("param", "other")) is None
    assert list(trace.digests(item)) == [(step, bytes([step, 1]) * 8) for step in (1, 2, 3)]
    assert list(trace.digests(item, "end")) == [(3, bytes([9, 1]) * 8)]
    assert list(trace.digests(Item("param", "other"))) == []


def test_an_item_that_changes_its_dtype_or_vanishes_is_read_as_it_was_at_each_step(tmp_path):
    item = Item("state", "w", "exp_avg", 0)
    specs = [F32, TensorSpec("bfloat16", (2, 3)), None, TensorSpec("float32", (3, 2)), F32]
    steps = [(n, "step", [(item, Sample(spec, bytes([n]) * 16))]) for n, spec in enumerate(specs, 1)]
    trace = Trace(written(tmp_path, *steps, (6, "step", some(1))))
    assert [trace.samples(n, "step")[item].spec for n in range(1, 6)] == specs
    assert [trace.digest(n, "step", item) for n in range(1, 7)] == [*(bytes([n]) * 16 for n in range(1, 6)), None]
    assert [step for step, _ in trace.digests(item)] == [1, 2, 3, 4, 5]


def test_a_later_sample_of_an_item_in_a_moment_wins_even_with_another_spec(tmp_path):
    item = Item("loss", "returned")
    early, late = Sample(F32, b"e" * 16), Sample(SCALAR, b"l" * 16, value=1.0)
    trace = Trace(written(tmp_path, (1, "step", [(item, late)]), (2, "step", [(item, late), (item, early)])))
    assert trace.samples(2, "step") == {item: early}
    assert trace.digest(2, "step", item) == early.digest


def test_long_texts_are_cut_but_structures_are_kept_whole(tmp_path):
    text, digest = "x" * 5000, b"t" * 16
    samples = [
        (Item("extra", "long"), Sample(None, b"a" * 16, value=text)),
        (Item("structure", "groups"), Sample(None, digest, value=text)),
    ]
    trace = Trace(written(tmp_path, (1, "step", samples), (2, "step", samples)))
    assert trace.samples(1, "step")[Item("extra", "long")].value == text[:MAX_TEXT]
    assert trace.text(digest) == text
    assert trace.text(b"other" * 3) is None and trace.text(None) is None


def test_text_that_is_no_unicode_is_written_with_escapes(tmp_path):
    samples = [(Item("extra", "a\ud800", "k\udfff"), Sample(None, b"a" * 16, value="\udc80"))]
    ((item, sample),) = Trace(written(tmp_path, (1, "step", samples))).samples(1, "step").items()
    assert (item.name, item.key, sample.value) == ("a\\ud800", "k\\udfff", "\\udc80")


def test_a_moment_that_fails_leaves_nothing_and_the_next_is_whole(tmp_path):
    path = tmp_path / "x.trace"
    writer = TraceWriter(path, HEADER)
    writer.write(1, "step", some(1))

    def failing():
        yield Item("param", "new"), Sample(F32, b"n" * 16)
        yield Item("param", "bad"), Sample(F32, b"n" * 16, value=object())

    with pytest.raises(OutputError, match="cannot be written"):
        writer.write(2, "step", failing())
    writer.write(3, "step", [*some(3), (Item("param", "new"), Sample(F32, b"m" * 16))])
    writer.close(True)
    trace = Trace(path)
    assert trace.steps == [1, 3]
    assert trace.samples(3, "step")[Item("param", "new")].digest == b"m" * 16
    assert len(list(trace.tensors())) == 4


# One self-contained file


def test_a_closed_trace_is_one_file(tmp_path):
    path = written(tmp_path, (1, "step", some(1)), clean=False)
    assert list(tmp_path.iterdir()) == [path]
    assert not Trace(path).ended
    copy = tmp_path / "elsewhere with ? and %.trace"
    shutil.copy(path, copy)
    assert Trace(copy).steps == [1]


def test_a_trace_has_no_secondary_index(tmp_path):
    base = sqlite3.connect(written(tmp_path, (1, "step", some(1))))
    made = base.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    assert made == [("table", name) for name in ("header", "records", "steps", "tensors", "texts")]
    assert base.execute("SELECT count(*) FROM sqlite_master WHERE type != 'table'").fetchone() == (0,)
    base.close()


def test_a_row_takes_at_most_64_bytes_over_100_steps_of_100_tensors(tmp_path):
    kinds = ("param", "grad", "state")
    items = [Item(kind, f"layers.{n}.attention.weight", "exp_avg") for n in range(100) for kind in kinds]

    def samples(step):
        return [(item, Sample(F32, os.urandom(16), norm=step / 7)) for item in items]

    path = written(tmp_path, *((step, "step", samples(step)) for step in range(1, 101)))
    assert path.stat().st_size / (100 * len(items)) <= 64


def test_a_trace_is_never_written_over(tmp_path):
    path = written(tmp_path, (1, "step", some(1)))
    before = path.read_bytes()
    with pytest.raises(OutputError, match="never written over"):
        TraceWriter(path, HEADER)
    assert path.read_bytes() == before


def test_folders_are_made_and_a_folder_holds_a_trace_for_each_rank(tmp_path):
    for rank in (0, 1, 10):
        writer = TraceWriter(trace_file(tmp_path / "new" / "folder", rank), {**HEADER, "rank": rank})
        writer.write(1, "step", some(rank))
        writer.close(True)
    (tmp_path / "new" / "folder" / "notes.txt").write_text("not a trace")
    traces = open_traces(tmp_path / "new" / "folder")
    assert sorted(one.header["rank"] for one in traces) == [0, 1, 10]
    assert [one.header["rank"] for one in open_traces(trace_file(tmp_path / "new" / "folder", 1))] == [1]


# A killed run

KILLED = """
import os, signal, sys
from pathlib import Path
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.items import Item, Sample
writer = TraceWriter(Path(sys.argv[1]), {"digest": "xxh3_128"})
def samples(step):
    for place in range(300):
        if step == 40 and place == 150:
            os.kill(os.getpid(), signal.SIGKILL)
        yield Item("param", f"p{place}"), Sample(TensorSpec("float32", (2,)), bytes([step]) * 16, norm=float(step))
for step in range(1, 50):
    writer.write(step, "step", samples(step))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A trace whose writer was killed in the middle of writing step 40."""
    path = tmp_path_factory.mktemp("killed") / "rank-0.trace"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    return path


def test_a_killed_run_leaves_its_whole_steps_readable(killed):
    for _ in range(2):  # reading changes nothing
        trace = Trace(killed)
        assert trace.steps == list(range(1, 40)) and not trace.ended
        for step in (1, 39):
            samples = trace.samples(step, "step")
            assert len(samples) == 300
            assert {sample.digest for sample in samples.values()} == {bytes([step]) * 16}
        trace.close()


DROP = "os.getuid() or (os.setgid(65534), os.setuid(65534))  # modes do not bind root"


def run_python(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


READING = f"""
import os, sys
from pathlib import Path
from ckptcheck.trace.file import Trace
{DROP}
folder = Path(sys.argv[1])
assert not os.access(folder, os.W_OK)
trace = Trace(folder / "rank-0.trace")
print(trace.steps[-1], len(trace.samples(trace.steps[-1], "step")), trace.ended)
"""


@pytest.fixture
def read_only():
    """A folder that every user can enter, to be made read-only by `seal`."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "sealed"
        folder.mkdir()
        yield folder
        folder.chmod(0o755)


def seal(folder):
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)


def test_a_trace_is_readable_from_a_read_only_folder(read_only):
    written(read_only, (1, "step", some(1)))
    seal(read_only)
    done = run_python(READING, read_only)
    assert (done.stdout, done.stderr) == ("1 3 True\n", "")


def test_what_a_killed_run_left_is_readable_from_a_read_only_folder(read_only, killed):
    for file in killed.parent.iterdir():
        shutil.copy(file, read_only)
    seal(read_only)
    done = run_python(READING, read_only)
    assert (done.stdout, done.stderr) == ("39 300 False\n", "")


WRITING = f"""
import os, resource, sys
from pathlib import Path
from ckptcheck.errors import OutputError
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.items import Item, Sample
if len(sys.argv) > 2:
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
else:
    {DROP}
try:
    writer = TraceWriter(Path(sys.argv[1]) / "rank-0.trace", {{"digest": "xxh3_128"}})
    try:
        for step in range(1, 200):
            writer.write(step, "step", [(Item("param", f"p{{n}}"), Sample(None, bytes(16))) for n in range(200)])
    finally:
        try:
            writer.close(False)
        except OutputError:
            pass
except OutputError as error:
    print(error)
"""


def test_a_folder_that_cannot_be_written_is_refused_in_one_line(read_only):
    seal(read_only)
    done = run_python(WRITING, read_only)
    assert done.stderr == ""
    assert f"the trace {read_only}/rank-0.trace cannot be written" in done.stdout and done.stdout.count("\n") == 1


@pytest.mark.parametrize("limit", [0, 30_000, 300_000])
def test_a_disk_that_is_full_is_refused_in_one_line_and_keeps_whole_steps(tmp_path, limit):
    done = run_python(WRITING, tmp_path, limit)
    assert done.stderr == ""
    assert "cannot be written" in done.stdout and done.stdout.count("\n") == 1
    if limit == 300_000:
        trace = Trace(tmp_path / "rank-0.trace")
        assert trace.steps == list(range(1, len(trace.steps) + 1)) and 3 < len(trace.steps) < 199
        assert {len(trace.samples(step, "step")) for step in trace.steps} == {200}


# What is no trace


def test_an_absent_file_is_refused(tmp_path):
    with pytest.raises(TraceError, match="no trace at"):
        Trace(tmp_path / "nothing.trace")
    with pytest.raises(TraceError, match="no such file or folder"):
        open_traces(tmp_path / "nothing")
    with pytest.raises(TraceError, match="holds files named"):
        open_traces(tmp_path)


@pytest.mark.parametrize(("content", "said"), [
    (b"", "is empty"), (b"x" * 5000, "cannot be read as a trace"), (b"SQLite format 3\0", "cannot be read|no trace"),
    (b"SQLite format 3\0" + bytes(5000), "cannot be read|no trace"), (b"PK\3\4" * 100, "cannot be read as a trace"),
])  # fmt: skip
def test_a_file_that_is_no_trace_is_refused_and_left_as_it_is(tmp_path, content, said):
    path = tmp_path / "x.trace"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=said) as caught:
        Trace(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_bytes() == content and list(tmp_path.iterdir()) == [path]


def changed(path, *statements):
    base = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        base.execute(statement)
    base.close()
    return path


@pytest.mark.parametrize(("statement", "said"), [
    (f"PRAGMA user_version = {VERSION + 1}", "install a newer ckptcheck"),
    ("PRAGMA application_id = 0", "no trace"),
    ("DROP TABLE steps", "cannot be read as a trace"),
    ("DROP TABLE tensors", "cannot be read as a trace"),
    ("DELETE FROM steps", "holds no step"),
    ("UPDATE header SET value = 'not json'", "cannot be read as a trace"),
    ("UPDATE header SET value = NULL", "cannot be read as a trace"),
    ("DELETE FROM header WHERE name = 'digest'", "cannot be read as a trace"),
    ("UPDATE tensors SET shape = '3'", "cannot be read as a trace"),
    ("UPDATE tensors SET shape = NULL", "cannot be read as a trace"),
    ("ALTER TABLE tensors ADD COLUMN more", "cannot be read as a trace"),
])  # fmt: skip
def test_a_trace_with_another_schema_or_content_is_refused_at_once(tmp_path, statement, said):
    path = changed(written(tmp_path, (1, "step", some(1))), statement)
    with pytest.raises(TraceError, match=said):
        Trace(path)


@pytest.mark.parametrize("statement", [
    "DELETE FROM tensors WHERE id = 1", "UPDATE records SET norm = 'much'", "DROP TABLE records",
])  # fmt: skip
def test_damage_that_shows_only_when_it_is_read_is_refused_then(tmp_path, statement):
    trace = Trace(changed(written(tmp_path, (1, "step", some(1))), statement))
    with pytest.raises(TraceError, match="cannot be read as a trace"):
        trace.samples(1, "step")


def test_a_truncated_trace_is_refused_or_reads_as_it_was(tmp_path):
    path = written(tmp_path, *((step, "step", some(step)) for step in range(1, 200)))
    whole = path.read_bytes()
    assert len(whole) > 30_000
    refused = 0
    for size in range(0, len(whole), 3001):
        path.write_bytes(whole[:size])
        try:
            trace = Trace(path)
            for step in trace.steps:
                assert trace.samples(step, "step") == dict(some(step))
                assert trace.digest(step, "step", Item("param", "p1")) == bytes([step, 1]) * 8
        except TraceError:
            refused += 1
    assert refused == len(range(0, len(whole), 3001))


def test_the_schema_is_the_one_that_the_module_documents(tmp_path):
    base = sqlite3.connect(written(tmp_path, (1, "step", some(1))))
    columns = {
        name: [row[1] for row in base.execute(f"PRAGMA table_info({name})")]
        for name in ("header", "tensors", "steps", "texts", "records")
    }
    assert columns == {
        "header": ["name", "value"],
        "tensors": ["id", "kind", "name", "key", "optimizer", "grp", "part", "dtype", "shape"],
        "steps": ["id", "step", "moment"],
        "texts": ["digest", "text"],
        "records": ["at", "what", "digest", "presence", "norm", "value"],
    }
    assert base.execute("PRAGMA user_version").fetchone() == (1,)
    assert base.execute("PRAGMA application_id").fetchone()[0].to_bytes(4, "big") == b"ckpt"
    assert json.loads(base.execute("SELECT value FROM header WHERE name = 'ended'").fetchone()[0]) == "clean"
    assert len(base.execute("SELECT * FROM records").fetchall()) == 3
    base.close()
