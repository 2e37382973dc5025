"""Run a survey in Flower's simulation, with clients that are offline or share a person, and print the answers."""

import json
import sys
from pathlib import Path

import numpy as np
from flwr.app import Message
from flwr.simulation import run_simulation

from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
from dpadapt.integrations.device import Device
from dpadapt.integrations.flower import client_app, server_app

PEOPLE, FOLDER = 24, Path(sys.argv[1])


def device(context):
    number = int(context.node_config["partition-id"])
    if number < 4:
        raise ConnectionError("off")
    # 4 and 5 are one person with one memory, and so are 6 and 7.
    person = number // 2 * 2 if number < 8 else number
    x = np.random.default_rng(person).standard_normal(3)
    return Device(x, int(x[0] > 0), 1.0, FOLDER / str(person))


class Twice:
    """A grid that sends every message twice, and delivers both replies twice once both have arrived."""

    def __init__(self, grid):
        self._grid = grid
        self._twins = {}
        self._held = {}

    def __getattr__(self, name):
        return getattr(self._grid, name)

    def push_messages(self, messages):
        copies = [
            Message(
                m.content,
                m.metadata.dst_node_id,
                m.metadata.message_type,
                ttl=m.metadata.ttl,
                group_id=m.metadata.group_id,
            )
            for m in messages
        ]
        ids, again = list(self._grid.push_messages(messages)), list(self._grid.push_messages(copies))
        self._twins.update(zip(ids, again, strict=True))
        return ids

    def pull_messages(self, ids):
        pairs = [(one, self._twins[one]) for one in ids]
        missing = {one for pair in pairs for one in pair} - self._held.keys()
        for reply in self._grid.pull_messages(missing):
            self._held[reply.metadata.reply_to_message_id] = reply
        whole = [self._held[one] for pair in pairs if self._held.keys() >= set(pair) for one in pair]
        return [*whole, *whole]


def survey(agents):
    agents._grid = Twice(agents._grid)
    question = LossQuestion(LinearHypothesis([1.0, 0.5, 0.0]))
    bits = [agents.ask(question, n).bits.tolist() for n in (10, 14)]
    refused, unanswered = dict(agents.reception.refused), agents.unanswered
    print("FOUND", json.dumps({"bits": bits, "refused": refused, "unanswered": unanswered, "asked": agents.asked}))


if __name__ == "__main__":
    worker = {"init_args": {"num_cpus": 1, "include_dashboard": False}, "client_resources": {"num_cpus": 1.0}}
    server = server_app(survey, 1.0, n_people=PEOPLE, timeout=120.0)
    run_simulation(server, client_app(device), PEOPLE, backend_config=worker)
