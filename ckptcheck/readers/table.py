"""Every reader. A file or folder belongs to the first that claims it by its content."""

from typing import Final

from ckptcheck.readers.bare_pickle import BarePickle
from ckptcheck.readers.dcp import Dcp
from ckptcheck.readers.folder import Folder
from ckptcheck.readers.json_file import JsonFile
from ckptcheck.readers.reader import FileReader, FolderReader
from ckptcheck.readers.run_folder import RunFolder
from ckptcheck.readers.safetensors import Safetensors
from ckptcheck.readers.safetensors_sharded import ShardedFolder, ShardIndex
from ckptcheck.readers.store_folder import StoreFolder
from ckptcheck.readers.tar_archive import GzipTar, TarArchive
from ckptcheck.readers.torch_legacy import TorchLegacy
from ckptcheck.readers.torch_tar import TorchTar
from ckptcheck.readers.torch_zip import TorchZip
from ckptcheck.readers.zip_archive import ZipArchive

FILE_READERS: Final[tuple[FileReader, ...]] = (
    TorchZip(),
    TorchLegacy(),
    TorchTar(),
    Safetensors(),
    ShardIndex(),
    JsonFile(),
    ZipArchive(),
    TarArchive(),
    GzipTar(),
    BarePickle(),
)

FOLDER_READERS: Final[tuple[FolderReader, ...]] = (StoreFolder(), Dcp(), ShardedFolder(), RunFolder(), Folder())
