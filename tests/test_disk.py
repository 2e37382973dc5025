"""Files are written whole or not at all; file systems that several machines share are recognised."""

import os
import stat

import pytest

from dpadapt import disk


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
