"""Is a classifier good enough for people who trust only their own device? Needs the extra federated.

A Flower ServerApp asks, and 60 Flower clients answer: each has one record, draws its own noise, sends one bit and
remembers it. Some clients are switched off. A second survey is refused by all devices, because their budget is spent.
Flower's simulation runs both sides in one process and a worker; docs/guides/federated.md runs them as
separate processes.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from flwr.simulation import run_simulation

from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
from dpadapt.integrations.device import Device
from dpadapt.integrations.flower import client_app, server_app

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # before Flower is imported
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # or Ray warns of GPUs, here and in workers

PEOPLE, EPSILON = 60, 2.0
folder = tempfile.mkdtemp()


def device(context):
    person = int(context.node_config["partition-id"])
    if person % 10 == 0:
        raise ConnectionError("switched off")
    x = np.random.default_rng(person).standard_normal(3)
    return Device(x, int(x[0] > 0), EPSILON, Path(folder) / f"person {person}")


def survey(agents):
    question = LossQuestion(LinearHypothesis([1.0, 0.5, 0.0]))
    for n in (20, 40):
        answers = agents.ask(question, n)
        print(f"asked {n}: {len(answers)} bits came back, estimated loss {(1 + answers.mean()) / 2:.2f}")


def second_survey(agents):
    answers = agents.ask(LossQuestion(LinearHypothesis([1.0, 0.0, 0.0])), PEOPLE)
    print(f"asked {PEOPLE} again: {len(answers)} bits came back, {agents.unanswered} devices refused or were off")


worker = {"init_args": {"num_cpus": 1, "include_dashboard": False}, "client_resources": {"num_cpus": 1.0}}
for main in (survey, second_survey):
    server = server_app(main, EPSILON, n_people=PEOPLE, timeout=120.0)
    run_simulation(server, client_app(device), PEOPLE, backend_config=worker)
