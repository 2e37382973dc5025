"""Without torch, the network modules and what imports them can't be searched for examples."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/dpadapt/networks/*", "tests/networks/kill_driver.py"]
