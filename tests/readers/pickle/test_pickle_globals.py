"""What a pickle names is graded by what it would do."""

import pickletools
import zipfile

import pytest

from ckptcheck.readers.pickle.pickle_globals import grade, grade_getattr, todays_name
from ckptcheck.state.raw import Danger
from tests.readers.torch_files import read_zip, unpickled
from tests.samples import CHECKPOINTS

PLAIN, UNKNOWN, RUNS_CODE = Danger.PLAIN, Danger.UNKNOWN, Danger.RUNS_CODE

GRADES = [
    ("collections OrderedDict", PLAIN), ("collections Counter", PLAIN), ("__builtin__ set", PLAIN),
    ("builtins complex", PLAIN), ("_codecs encode", PLAIN), ("argparse Namespace", PLAIN),
    ("torch._utils _rebuild_tensor_v2", PLAIN), ("torch._utils _rebuild_tensor_v3", PLAIN),
    ("torch FloatStorage", PLAIN), ("torch.cuda FloatStorage", PLAIN), ("torch.storage UntypedStorage", PLAIN),
    ("torch bfloat16", PLAIN), ("torch float8_e4m3fn", PLAIN), ("torch uint16", PLAIN), ("torch Size", PLAIN),
    ("torch.nn.parameter Parameter", PLAIN), ("torch.serialization _get_layout", PLAIN),
    ("numpy dtype", PLAIN), ("numpy.core.multiarray _reconstruct", PLAIN), ("numpy._core.multiarray scalar", PLAIN),
    ("numpy._core.numeric _frombuffer", PLAIN), ("numpy.random._pickle __randomstate_ctor", PLAIN),
    ("pathlib PosixPath", PLAIN), ("pathlib._local PosixPath", PLAIN), ("datetime datetime", PLAIN),
    ("signal Signals", PLAIN), ("_io BytesIO", PLAIN),
    ("copyreg __newobj__", PLAIN), ("copy_reg _reconstructor", PLAIN),
    ("__main__ Net", UNKNOWN), ("functools partial", UNKNOWN), ("torch.nn.modules.linear Linear", UNKNOWN),
    ("transformers.training_args TrainingArguments", UNKNOWN), ("torch.nn.functional relu", UNKNOWN),
    ("code.model Net", UNKNOWN), ("mypackage.os_model Net", UNKNOWN), ("ostrich Bird", UNKNOWN),
    ("mine.system Thing", UNKNOWN), ("torch.distributed.tensor DTensor", PLAIN), ("torch floatify", UNKNOWN),
    ("os system", RUNS_CODE), ("posix system", RUNS_CODE), ("nt system", RUNS_CODE), ("os.path join", RUNS_CODE),
    ("subprocess Popen", RUNS_CODE), ("__builtin__ eval", RUNS_CODE), ("builtins exec", RUNS_CODE),
    ("builtins compile", RUNS_CODE), ("builtins __import__", RUNS_CODE), ("builtins open", RUNS_CODE),
    ("builtins getattr", RUNS_CODE), ("importlib import_module", RUNS_CODE), ("runpy run_path", RUNS_CODE),
    ("pty spawn", RUNS_CODE), ("socket socket", RUNS_CODE), ("shutil rmtree", RUNS_CODE), ("sys exit", RUNS_CODE),
    ("code InteractiveInterpreter", RUNS_CODE), ("ctypes CDLL", RUNS_CODE), ("operator attrgetter", RUNS_CODE),
    ("operator methodcaller", RUNS_CODE), ("_operator methodcaller", RUNS_CODE), ("torch load", RUNS_CODE),
    ("torch.storage _load_from_bytes", RUNS_CODE), ("torch.hub load", RUNS_CODE), ("pickle loads", RUNS_CODE),
    ("_pickle loads", RUNS_CODE), ("cPickle loads", RUNS_CODE), ("bdb Bdb", RUNS_CODE), ("pdb run", RUNS_CODE),
    ("webbrowser open", RUNS_CODE),
    ("timeit timeit", RUNS_CODE), ("pip main", RUNS_CODE), ("pip._internal main", RUNS_CODE),
    ("numpy.testing._private.utils runstring", RUNS_CODE), ("numpy.f2py.crackfortran myeval", RUNS_CODE),
    ("commands getoutput", RUNS_CODE), ("marshal loads", RUNS_CODE), ("types FunctionType", RUNS_CODE),
    ("torch.serialization os.system", RUNS_CODE), ("collections abc.sys.modules", RUNS_CODE),
    ("torch.nn.modules.linear Linear.__init__.__globals__", RUNS_CODE), ("torch.utils.cpp_extension load", RUNS_CODE),
    ("cloudpickle.cloudpickle _make_function", RUNS_CODE), ("torch._utils os", RUNS_CODE),
]  # fmt: skip


@pytest.mark.parametrize(("spelled", "danger"), GRADES, ids=str)
def test_a_global_is_graded_by_what_it_would_do(spelled: str, danger: Danger) -> None:
    module, name = spelled.split()
    assert grade(module, name) is danger


@pytest.mark.parametrize(
    ("owner", "name", "danger"),
    [
        ("torch.distributed._shard.sharded_tensor.api.ShardedTensor", "ProcessGroupState", PLAIN),
        ("mine.Model", "schedule", UNKNOWN),
        ("mine.Model", "Inner", UNKNOWN),
        ("mmengine.logging.history_buffer.HistoryBuffer", "mean", PLAIN),
        ("mmengine.logging.history_buffer.HistoryBuffer", "__init__", RUNS_CODE),
        ("mmengine.logging.history_buffer.Other", "mean", UNKNOWN),
        ("torch.nn.Linear", "__init__", RUNS_CODE),
        ("os", "system", RUNS_CODE),
        ("torch.serialization", "os", RUNS_CODE),
        ("torch.hub", "load", RUNS_CODE),
    ],
)
def test_getattr_is_graded_by_what_it_gets(owner: str, name: str, danger: Danger) -> None:
    assert grade_getattr(owner, name) is danger


def test_names_of_python_2_and_numpy_1_are_todays() -> None:
    assert todays_name("__builtin__", "unicode") == "builtins.str"
    assert todays_name("numpy.core.multiarray", "scalar") == "numpy._core.multiarray.scalar"
    assert todays_name("mine", "unicode") == "mine.unicode"


def test_files_of_fsdp_need_getattr_and_are_no_danger() -> None:
    tree = read_zip(CHECKPOINTS / "09_fsdp_ddp/fsdp1_uop1_sharded_rank0.pt")
    [found] = [one for one in tree.globals if one.name == "__builtin__.getattr"]
    assert found.danger is PLAIN
    assert Danger.RUNS_CODE not in {one.danger for one in tree.globals}


def test_the_worst_getattr_of_a_pickle_counts() -> None:
    def got(owner: bytes, name: bytes) -> bytes:
        return b"h\x00c" + owner + b"X" + len(name).to_bytes(4, "little") + name + b"\x86R"

    begin = b"\x80\x02(cbuiltins\ngetattr\nq\x00"
    nested, evil = got(b"torch.x\nOuter\n", b"Inner"), got(b"os\npath\n", b"system")
    for body, danger in [(nested, PLAIN), (nested + evil, RUNS_CODE), (evil + nested, RUNS_CODE), (b"", RUNS_CODE)]:
        graded = {one.name: one.danger for one in unpickled(begin + body + b"t.").globals}
        assert graded["builtins.getattr"] is danger


def test_every_global_of_a_pickle_is_listed_as_it_is_spelled_and_counted() -> None:
    path = CHECKPOINTS / "01_torch_save/zip_full.pt"
    with zipfile.ZipFile(path) as archive:
        operations = list(pickletools.genops(archive.read("zip_full/data.pkl")))
    expected: dict[str, int] = {}
    for operation, argument, _ in operations:
        if operation.name == "GLOBAL":
            name = str(argument).replace(" ", ".")
            expected[name] = expected.get(name, 0) + 1
    tree = read_zip(path)
    assert {one.name: one.count for one in tree.globals} == expected
    assert {one.file for one in tree.globals} == {""}
