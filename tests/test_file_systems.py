"""Which file systems several machines share."""

import pytest

from dpadapt import file_systems
from dpadapt.file_systems import network_file_system


@pytest.mark.parametrize(
    ("kind", "shared"), [("nfs4", True), ("cifs", True), ("fuse.sshfs", True), ("ext4", False), ("fuse.ext2", False)]
)
def test_the_longest_mount_point_above_a_file_says_where_it_lies(tmp_path, monkeypatch, kind, shared):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - btrfs /dev/x rw\n2 1 0:2 / {tmp_path} rw - {kind} server:/x rw\n")
    monkeypatch.setattr(file_systems, "_MOUNTS", mounts)
    assert network_file_system(tmp_path / "file") == (kind if shared else "")
    assert network_file_system(tmp_path.parent / "file") == ""
    monkeypatch.setattr(file_systems, "_MOUNTS", tmp_path / "nothing")
    assert network_file_system(tmp_path / "file") == ""
