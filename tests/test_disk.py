"""Files are written whole or not at all; file systems that several machines share are recognised."""

import os
import stat

import pytest

from dpadapt import disk
from dpadapt.disk import network_file_system


@pytest.mark.parametrize(
    ("kind", "shared"), [("nfs4", True), ("cifs", True), ("fuse.sshfs", True), ("ext4", False), ("fuse.ext2", False)]
)
def test_the_longest_mount_point_above_a_file_says_where_it_lies(tmp_path, monkeypatch, kind, shared):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - btrfs /dev/x rw\n2 1 0:2 / {tmp_path} rw - {kind} server:/x rw\n")
    monkeypatch.setattr(disk, "_MOUNTS", mounts)
    assert network_file_system(tmp_path / "file") == (kind if shared else "")
    assert network_file_system(tmp_path.parent / "file") == ""
    monkeypatch.setattr(disk, "_MOUNTS", tmp_path / "nothing")
    assert network_file_system(tmp_path / "file") == ""


def test_a_failed_write_leaves_the_old_file_and_no_scraps(tmp_path, monkeypatch):
    path = tmp_path / "file"
    disk.write_atomically(path, b"old")

    def fail(handle):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        disk.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_device_is_written_to_and_never_replaced(tmp_path):
    """As root, a file in the place of /dev/null would break the whole machine."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.read_bytes()
    except OSError as error:
        pytest.skip(f"needs the right to make a device: {error}")
    disk.write_atomically(device, b"content")
    assert device.is_char_device()
    assert device.read_bytes() == b""


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        disk.write_atomically(tmp_path / "pipe", b"content")
