"""The person's side: the record, the largest epsilon that the person allows, and the file that stores the answer."""

import numpy as np

from dpadapt.integrations.device import Device
from dpadapt.integrations.flower import client_app


def device(context):
    # The settings that the node was started with. A real device would read its own record here.
    person, memory = context.node_config["partition-id"], context.node_config["memory"]
    x = np.random.default_rng(person).standard_normal(3)
    return Device(x, int(x[0] > 0), epsilon=1.0, memory=memory)


app = client_app(device)
