"""Files that must survive a crash: written whole or not at all, through to the disk, locked, on which file system."""

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows: durable ledgers, which lock, refuse it
    fcntl = None  # type: ignore[assignment]

_MOUNTS = Path("/proc/self/mountinfo")
# File systems on which several machines can write to one file. Their locks and caches don't reliably reach all of them.
_NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs coda davfs fhgfs gfs glusterfs gpfs lustre ncpfs nfs nfs4 orangefs prl_fs pvfs2 smb2 smb3 "
    "smbfs vboxsf virtiofs vmhgfs".split()
)
_NETWORK_USER_FILE_SYSTEMS = frozenset(
    "beegfs blobfuse blobfuse2 ceph ceph-fuse curlftpfs davfs davfs2 gcsfuse glusterfs goofys grpcfuse gvfsd-fuse "
    "hdfs juicefs lizardfs mfs moosefs mount-s3 objectivefs osxfs rclone s3fs seaweedfs smbnetfs sshfs vmhgfs-fuse "
    "weed".split()
)


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file whole or not at all, as `atomic_file` does."""
    with atomic_file(path) as file:
        file.write(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write that takes its place when the block ends, and leaves nothing behind if the block fails.

    A terminal or another device, such as /dev/stdout or /dev/null, is written to; a file in its place would break it.
    """
    if path.is_char_device():
        with path.open("wb") as file:
            yield file
        return
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    scratch = Path(name)
    try:
        with scratch.open("wb") as file:
            yield file
            sync(file)
        # mkstemp makes files for the owner alone; give the rights that open() would have given.
        scratch.chmod(0o666 & ~_umask())
        os.replace(scratch, path)
        sync_folder(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync(file: IO[bytes] | IO[str]) -> None:
    """Write what a file holds through to the disk."""
    # Claim: when this returns, the data are on the disk.
    # Not proved: a disk that reports data as written when they are not.
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Write the names in a folder through to the disk, so that a new one survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def try_lock(file: IO[bytes]) -> bool:
    """Lock the file for this opening of it, against other threads too; return False if somebody else holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(file: IO[bytes]) -> None:
    """Give up the lock: closing alone would keep it if another thread forked meanwhile."""
    fcntl.flock(file, fcntl.LOCK_UN)


def network_file_system(path: Path) -> str:
    """Return the type of the network file system that holds `path`; nothing if it is a local one, or not known."""
    kind = _file_system(path)
    return kind if kind in _NETWORK_FILE_SYSTEMS or kind.removeprefix("fuse.") in _NETWORK_USER_FILE_SYSTEMS else ""


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`, or nothing where the system does not list its mounts."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    above = {str(path), *map(str, path.parents)}
    longest, kind = 0, ""
    for line in lines:
        # proc(5): number, parent, device, root, mount point, options, ... - type, source, options.
        mount, _, rest = line.partition(" - ")
        fields, types = mount.split(" "), rest.split(" ")
        if len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        # Of two mounts on one point, the later one covers the earlier one.
        if point in above and len(point) >= longest:
            longest, kind = len(point), types[0]
    return kind
