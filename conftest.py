"""Without torch or Flower, the modules that need them and what imports these can't be searched for examples."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/dpadapt/networks/*", "tests/networks/kill_driver.py"]
if not find_spec("flwr"):
    collect_ignore_glob += ["src/dpadapt/integrations/flower.py", "tests/integrations/flower_driver.py"]
