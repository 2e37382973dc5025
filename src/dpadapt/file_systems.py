"""`network_file_system`: whether a file lies on a file system that several machines share."""

import re
from pathlib import Path

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
