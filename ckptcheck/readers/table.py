"""Every reader. A file or folder belongs to the first that claims it by its content."""

from typing import Final

from ckptcheck.readers.archives.tar_archive import GzipTar, TarArchive
from ckptcheck.readers.archives.zip_archive import ZipArchive
from ckptcheck.readers.dcp.dcp import Dcp
from ckptcheck.readers.folders.folder import Folder
from ckptcheck.readers.folders.run_folder import RunFolder
from ckptcheck.readers.folders.store_folder import StoreFolder
from ckptcheck.readers.json_file import JsonFile
from ckptcheck.readers.pickle.bare_pickle import BarePickle
from ckptcheck.readers.reader import FileReader, FolderReader
from ckptcheck.readers.safetensors.safetensors import Safetensors
from ckptcheck.readers.safetensors.safetensors_sharded import ShardedFolder, ShardIndex
from ckptcheck.readers.torch.torch_legacy import TorchLegacy
from ckptcheck.readers.torch.torch_tar import TorchTar
from ckptcheck.readers.torch.torch_zip import TorchZip

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
