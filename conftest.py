"""Without torch or Flower, the modules that need them and what imports these can't be searched for examples."""

from importlib.util import find_spec

_TORCH = ["src/dpadapt/networks/*", "benchmarks/mirror/models.py", "tests/networks/kill_driver.py"]
collect_ignore_glob = [] if find_spec("torch") else _TORCH
if not find_spec("flwr"):
    collect_ignore_glob += ["src/dpadapt/integrations/flower.py"]
