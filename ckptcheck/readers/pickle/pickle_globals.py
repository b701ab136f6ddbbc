"""What every global that a pickle names would do where a pickle is executed; we execute none."""

import re
from collections.abc import Mapping
from typing import Final

from ckptcheck.state.raw import Danger, Global

_OTHER_MODULES: Final = {
    "__builtin__": "builtins", "exceptions": "builtins", "copy_reg": "copyreg", "cPickle": "pickle",
    "_pickle": "pickle", "UserDict": "collections", "UserList": "collections", "Queue": "queue",
    "commands": "subprocess", "posix": "os", "nt": "os", "posixpath": "os.path", "ntpath": "os.path",
    "_io": "io", "_operator": "operator", "_collections": "collections", "_functools": "functools",
    "_datetime": "datetime", "_decimal": "decimal", "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric", "pathlib._local": "pathlib",
}  # fmt: skip
"""Other names of one module: of Python 2, of its part in C, of numpy 1."""
_OTHER_NAMES: Final = {
    "builtins.unicode": "builtins.str", "builtins.long": "builtins.int", "builtins.xrange": "builtins.range",
    "builtins.basestring": "builtins.str", "builtins.unichr": "builtins.chr",
}  # fmt: skip

_RUN_CODE: Final = frozenset({
    "builtins.eval", "builtins.exec", "builtins.execfile", "builtins.compile", "builtins.__import__", "builtins.open",
    "builtins.input", "builtins.breakpoint", "builtins.setattr", "builtins.delattr",
    "builtins.globals", "builtins.locals", "builtins.vars", "builtins.apply", "builtins.file", "builtins.reload",
    "builtins.map", "builtins.filter", "builtins.__build_class__",
    "operator.attrgetter", "operator.methodcaller", "operator.itemgetter", "functools.reduce", "types.FunctionType",
    "types.CodeType", "types.LambdaType", "types.MethodType", "io.FileIO", "io.open", "io.open_code", "io.OpenWrapper",
    "torch.load", "torch.storage._load_from_bytes", "torch.serialization.load", "torch.serialization._load",
    "torch.serialization._legacy_load", "torch.jit.load", "torch.jit.script", "torch.ops.load_library",
    "torch.classes.load_library", "torch._C._jit_pickle_load", "torch.distributed.rpc.rpc_sync",
    "torch.utils.collect_env.run", "torch.jit.unsupported_tensor_ops.execWrapper",
    "torch.fx.graph_module.reduce_graph_module", "torch.fx.graph_module._exec_with_source",
    "torch.fx.graph_module._forward_from_src", "torch.package.package_importer.PackageImporter",
    "numpy.load", "numpy.fromfile", "numpy.memmap", "numpy.loadtxt", "numpy.genfromtxt", "numpy.save",
    "numpy.testing._private.utils.runstring", "numpy.testing.utils.runstring", "numpy.testing.runstring",
    "numpy.f2py.crackfortran.getlincoef", "numpy.f2py.crackfortran.myeval", "numpy.f2py.compile",
    "numpy.distutils.exec_command.exec_command", "numpy.lib.npyio.load",
    "pandas.read_pickle", "pandas.eval", "pandas.io.pickle.read_pickle", "pandas.core.computation.eval.eval",
    "joblib.load", "joblib.numpy_pickle.load", "pathlib.Path.write_text", "logging.config.dictConfig",
    "logging.config.fileConfig", "logging.FileHandler", "asyncio.run", "asyncio.create_subprocess_shell",
    "asyncio.subprocess.create_subprocess_shell", "asyncio.subprocess.create_subprocess_exec",
    "asyncio.unix_events._UnixSubprocessTransport._start", "multiprocessing.util.spawnv_passfds",
    "distutils.spawn.spawn", "distutils.file_util.write_file", "uuid._get_command_stdout", "uuid._popen",
    "pydoc.pipepager", "pydoc.tempfilepager", "pydoc.locate", "zipimport.zipimporter", "ensurepip._run_pip",
    "lib2to3.pgen2.grammar.Grammar.loads", "idlelib.pyshell.ModifiedInterpreter.runcode",
    "idlelib.autocomplete.AutoComplete.get_entity", "idlelib.calltip.Calltip.fetch_tip",
    "idlelib.calltip.get_entity", "idlelib.debugobj.ObjectTreeItem.SetText", "idlelib.run.Executive.runcode",
    "code.InteractiveInterpreter", "code.InteractiveConsole", "code.interact", "code.compile_command",
    "profile.run", "profile.runctx", "platform.popen", "gc.get_objects", "doctest.debug_script",
    "trace.Trace.run", "trace.Trace.runctx", "cgitb.lookup", "test.support.script_helper",
    "cloudpickle.cloudpickle._make_function", "cloudpickle.cloudpickle._builtin_type",
    "cloudpickle.cloudpickle._make_skeleton_func", "cloudpickle.cloudpickle.subimport", "dill._dill._create_function",
    "dill._dill._create_code", "dill._dill._import_module", "dill._dill._eval_repr", "keras.models.load_model",
    "tensorflow.keras.models.load_model", "yaml.load", "yaml.unsafe_load", "jinja2.Template",
})  # fmt: skip
"""Functions and classes that run a command, run or import code, or read and write files."""
_RUN_CODE_MODULES: Final = frozenset({
    "os", "subprocess", "importlib", "runpy", "pty", "socket", "shutil", "sys", "codeop", "ctypes", "_ctypes", "bdb",
    "pdb", "webbrowser", "timeit", "pip", "pickle", "marshal", "shelve", "imp", "pkgutil", "profile.Profile",
    "cProfile", "_posixsubprocess", "_winapi", "winreg", "_winreg", "msvcrt", "popen2", "tempfile", "fileinput",
    "_thread", "urllib", "urllib2", "httplib", "ftplib", "telnetlib", "smtplib", "poplib", "imaplib", "nntplib",
    "xmlrpc", "ssl", "_socket", "socketserver", "paramiko", "sqlite3", "dbm", "setuptools", "distutils", "venv",
    "ensurepip", "atexit", "mmap", "fcntl", "nturl2path", "idlelib", "dill", "cloudpickle", "pexpect", "plumbum",
    "IPython", "torch.hub", "torch.utils.cpp_extension", "torch._inductor.codecache", "torch.package",
    "torch.utils.model_zoo", "numpy.distutils", "numpy.f2py", "numpy.ctypeslib", "linecache", "zipfile", "tarfile",
    "rlcompleter", "http.server", "http.client", "multiprocessing.util", "asyncio.subprocess", "requests.api",
})  # fmt: skip
"""Modules, with all within them, that no training state has use for and a command can hide in."""
_DCP: Final = "torch.distributed.checkpoint"
_TENSOR: Final = "torch.distributed.tensor"
_SHARDED: Final = "torch.distributed._shard"
_DISTRIBUTED: Final = frozenset({
    f"{_DCP}.metadata.Metadata", f"{_DCP}.metadata.TensorStorageMetadata", f"{_DCP}.metadata.TensorProperties",
    f"{_DCP}.metadata._MEM_FORMAT_ENCODING", f"{_DCP}.metadata.ChunkStorageMetadata",
    f"{_DCP}.metadata.BytesStorageMetadata", f"{_DCP}.metadata.MetadataIndex",
    f"{_DCP}.metadata.StorageMeta", f"{_DCP}.filesystem._StorageInfo",
    f"{_TENSOR}.DTensor", f"{_TENSOR}._api.DTensor", f"{_TENSOR}._dtensor_spec.DTensorSpec",
    f"{_TENSOR}._dtensor_spec.TensorMeta", f"{_TENSOR}._dtensor_spec.ShardOrderEntry",
    f"{_TENSOR}.placement_types.Shard", f"{_TENSOR}.placement_types.Replicate",
    f"{_TENSOR}.placement_types.Partial", f"{_TENSOR}.placement_types._StridedShard",
    "torch.distributed.device_mesh.DeviceMesh", "torch.distributed._mesh_layout._MeshLayout",
    "torch.distributed._mesh_layout._FlatLayout", "torch.distributed.remote_device._remote_device",
    f"{_SHARDED}.metadata.ShardMetadata", f"{_SHARDED}.sharded_tensor.api.ShardedTensor",
    f"{_SHARDED}.sharded_tensor.shard.Shard", f"{_SHARDED}.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    f"{_SHARDED}.sharded_tensor.metadata.ShardedTensorMetadata",
    f"{_SHARDED}.sharded_tensor.metadata.TensorProperties",
    f"{_SHARDED}.sharding_spec.chunk_sharding_spec.ChunkShardingSpec",
})  # fmt: skip
"""Classes that the description of a distributed checkpoint, and one rank's piece of a tensor, are pickled with."""
_PLAIN: Final = frozenset({
    *_DISTRIBUTED,
    "numpy.ndarray", "numpy.dtype", "numpy._core.multiarray._reconstruct", "numpy._core.multiarray.scalar",
    "numpy._core.numeric._frombuffer", "numpy.random._pickle.__randomstate_ctor",
    "numpy.random._pickle.__generator_ctor", "numpy.random._pickle.__bit_generator_ctor",
    "numpy.random._mt19937.MT19937", "numpy.random._pcg64.PCG64", "numpy.random._pcg64.PCG64DXSM",
    "numpy.random._philox.Philox", "numpy.random._sfc64.SFC64", "numpy.random.bit_generator.SeedSequence",
    "numpy.random.bit_generator.__pyx_unpickle_SeedSequence", "numpy.random._generator.Generator",
    "builtins.set", "builtins.frozenset", "builtins.list", "builtins.dict", "builtins.tuple", "builtins.bytearray",
    "builtins.bytes", "builtins.str", "builtins.int", "builtins.float", "builtins.bool", "builtins.complex",
    "builtins.slice", "builtins.range", "builtins.object", "builtins.NoneType", "builtins.Ellipsis",
    "collections.OrderedDict", "collections.defaultdict", "collections.Counter", "collections.deque",
    "copyreg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__", "_codecs.encode",
    "argparse.Namespace", "types.SimpleNamespace", "decimal.Decimal", "fractions.Fraction", "uuid.UUID",
    "datetime.datetime", "datetime.date", "datetime.time", "datetime.timedelta", "datetime.timezone",
    "pathlib.Path", "pathlib.PurePath", "pathlib.PosixPath", "pathlib.PurePosixPath", "pathlib.WindowsPath",
    "pathlib.PureWindowsPath", "signal.Signals", "io.BytesIO", "array.array", "array._array_reconstructor",
    "torch.Size", "torch.Tensor", "torch.device", "torch.Generator", "torch._C.Generator", "torch.nn.Parameter",
    "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer", "torch.nn.parameter.UninitializedParameter",
    "torch.nn.parameter.UninitializedBuffer", "torch.serialization._get_layout", "torch.storage.UntypedStorage",
    "torch.storage.TypedStorage", "torch.UntypedStorage", "torch.TypedStorage", "torch._tensor._rebuild_from_type",
    "torch._tensor._rebuild_from_type_v2", "torch.nested._internal.nested_tensor.NestedTensor",
    "torch.nested._internal.nested_tensor._rebuild_njt", "torch.strided", "torch.sparse_coo", "torch.sparse_csr",
    "torch.sparse_csc", "torch.sparse_bsr", "torch.sparse_bsc", "torch._mkldnn", "torch.jagged",
    "torch.per_tensor_affine", "torch.per_channel_affine", "torch.per_tensor_symmetric", "torch.per_channel_symmetric",
    "torch.per_channel_affine_float_qparams", "torch.contiguous_format", "torch.channels_last", "torch.preserve_format",
    "torch.channels_last_3d", "torch.float", "torch.double", "torch.half", "torch.int", "torch.long", "torch.short",
    "torch.bool", "torch.cfloat", "torch.cdouble", "torch.chalf", "torch.complex32", "torch.complex64",
    "torch.complex128", "torch.bfloat16",
})  # fmt: skip
_PLAIN_FORM: Final = re.compile(
    r"torch\._utils\._rebuild_\w+|torch\.(float|int|uint|qint|quint|bits)\d\w*|torch\.(cuda\.|storage\.)?\w*Storage"
)
"""Functions that rebuild tensors, dtypes, and classes of storages."""
_HIDDEN: Final = frozenset({
    "os", "posix", "nt", "sys", "subprocess", "builtins", "__builtins__", "importlib", "shutil", "socket", "ctypes",
    "runpy", "pty", "pickle",
})  # fmt: skip
"""What a module may have imported, and a dotted name could reach through it."""
_GETATTR: Final = "builtins.getattr"
_KEEPS_METHODS: Final = frozenset({"mmengine.logging.history_buffer.HistoryBuffer"})
"""Classes whose objects keep their own methods in a dict, as statistics by name."""


def todays_name(module: str, name: str) -> str:
    """A global's dotted name as Python 3 and numpy 2 spell it."""
    full = f"{_OTHER_MODULES.get(module, module)}.{name}"
    return _OTHER_NAMES.get(full, full)


def grade(module: str, name: str) -> Danger:
    """What the global `name` of `module` would do. A name with dots in it reaches into whatever `module` imported."""
    full = todays_name(module, name)
    if full in _PLAIN:
        return Danger.PLAIN
    if full in _RUN_CODE or full == _GETATTR or _is_within_runner(full) or _reaches_through(name):
        return Danger.RUNS_CODE
    return Danger.PLAIN if _PLAIN_FORM.fullmatch(full) else Danger.UNKNOWN


def grade_getattr(owner: str, name: str) -> Danger:
    """What `getattr` of `name` would do on the class `owner`, or on an object of it.

    Nested classes, functions of a class and bound methods are pickled so; torch's own classes (FSDP1 files) and what
    the logs of mmengine keep are harmless.
    """
    got = grade(owner, name)
    if got is Danger.RUNS_CODE or name.startswith("__"):
        return Danger.RUNS_CODE
    is_nested = owner.startswith("torch.") and name[:1].isupper()
    return Danger.PLAIN if is_nested or owner in _KEEPS_METHODS else Danger.UNKNOWN


def globals_of(names: Mapping[tuple[str, str], int], file: str, graded: Mapping[str, Danger]) -> tuple[Global, ...]:
    """The globals of a pickle in `file`; `names` counts (module, name), `graded` are those told by their worst call."""
    return tuple(
        Global(file, f"{module}.{name}", graded.get(todays_name(module, name)) or grade(module, name), count)
        for (module, name), count in names.items()
    )


def _is_within_runner(full: str) -> bool:
    parts = full.split(".")
    return any(".".join(parts[:count]) in _RUN_CODE_MODULES for count in range(1, len(parts) + 1))


def _reaches_through(name: str) -> bool:
    parts = name.split(".")
    is_dunder = len(parts) > 1 and any(part.startswith("__") for part in parts)
    return is_dunder or any(part in _HIDDEN for part in parts)
