"""People asked through Flower: in one process, in Flower's simulation, and as separate processes."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `federated`; make test-federated runs this")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from dpadapt.errors import PrivacyError
from dpadapt.hybrid.deciding import decide
from dpadapt.hybrid.device import Device
from dpadapt.hybrid.flower import FlowerAgents, client_app
from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

QUESTION = LossQuestion(LinearHypothesis([1.0, 0.0]))
APP = Path(__file__).parents[2] / "examples" / "federated_app"
QUIET = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


class Hall:
    """A grid whose clients are called in this process; `manners` says how each node misbehaves."""

    def __init__(self, apps, manners=None):
        self.apps = apps
        self.manners = manners or {}
        self._replies = {}
        self._late = []

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        # What came too late for the last question is there with the next.
        for name, reply in self._late:
            self._replies.setdefault(name, []).append(reply)
        self._late = []
        ids = []
        for message in messages:
            name, node = str(uuid4()), message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = name
            ids.append(name)
            manner = self.manners.get(node, "honest")
            if manner == "silent":
                continue
            reply = self.apps[node](message, context(node))
            if manner == "late":
                self._late.append((name, reply))
                continue
            if callable(manner):
                reply = Message(manner(reply), reply_to=message)
            if manner == "failing":
                reply = Message(Error(1, "failed"), reply_to=message)
            if manner == "somebody else":
                reply.metadata.__dict__["_src_node_id"] = 999
            self._replies[name] = [reply] * (3 if manner == "thrice" else 1)
        return ids

    def pull_messages(self, ids):
        return [reply for name in ids for reply in self._replies.pop(name, [])]


def context(node):
    return Context(run_id=1, node_id=node, node_config={"partition-id": node}, state=RecordDict(), run_config={})


@pytest.fixture(autouse=True)
def run(monkeypatch):
    """Flower makes messages only inside a run."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def hall(tmp_path):
    def make(n=8, manners=None, epsilon=1.0):
        def device(context):
            return Device([2.0, 0.0], context.node_id % 2, epsilon, tmp_path / str(context.node_id))

        return Hall({node: client_app(device) for node in range(1, n + 1)}, manners)

    return make


def ask(hall, n=8, **settings):
    agents = FlowerAgents(hall, 1.0, timeout=0.3, **settings)
    return agents, agents.ask(QUESTION, n)


def test_every_device_answers_one_bit_and_remembers_it(hall, tmp_path):
    agents, answers = ask(hall())
    assert len(answers) == 8
    assert set(answers.bits.tolist()) <= {-1, 1}
    assert (agents.asked, agents.available, agents.unanswered) == (8, 0, 0)
    said = {int(path.name): int(path.read_text().split()[-1]) for path in tmp_path.iterdir()}
    asked = agents.record[0]
    assert {agents._nodes[person]: bit for person, bit in zip(asked.people, asked.bits, strict=True)} == said


def test_a_second_survey_is_refused_by_every_device(hall):
    ask(hall())
    agents, answers = ask(hall())
    assert len(answers) == 0
    assert agents.unanswered == 8
    assert agents.available == 0


def test_people_who_are_offline_fail_or_allow_less_are_missing(hall):
    agents, answers = ask(hall(manners={1: "silent", 2: "failing", 3: "silent"}))
    assert len(answers) == 5
    assert agents.unanswered == 1
    agents, answers = ask(hall(epsilon=0.5))
    assert len(answers) == 0


def test_duplicate_answers_are_refused(hall):
    agents, answers = ask(hall(manners={1: "thrice", 5: "thrice"}))
    assert len(answers) == 8
    assert agents.reception.refused == Counter(duplicate=4)


def test_late_answers_are_refused(hall):
    agents = FlowerAgents(hall(manners={1: "late", 2: "late", 3: "late"}), 1.0, timeout=0.3)
    agents._nodes.sort()
    agents._number = {node: number for number, node in enumerate(agents._nodes)}
    assert len(agents.ask(QUESTION, 3)) == 0
    assert len(agents.ask(QUESTION, 5)) == 5
    assert agents.reception.refused == Counter(late=3)
    assert len(agents.record[0].bits) == 0


def lie(record):
    return lambda reply: RecordDict({"dpadapt": ConfigRecord(record)})


LIES = [lie({"bit": value}) for value in (0, 2, 1.0, True, "1", [1, 1], b"1")] + [
    lie({}),
    lie({"bit": 1, "more": 1}),
    lambda reply: RecordDict({}),
    lambda reply: RecordDict({"other": ConfigRecord({"bit": 1})}),
]


@pytest.mark.parametrize("manner", LIES)
def test_malformed_replies_are_refused(hall, manner):
    agents, answers = ask(hall(manners={4: manner}))
    assert len(answers) == 7
    assert agents.reception.refused == Counter(malformed=1)


def test_an_answer_from_an_unknown_node_is_refused(hall):
    agents, answers = ask(hall(manners={4: "somebody else"}))
    assert len(answers) == 7
    assert agents.reception.refused == Counter(stranger=1)


def test_two_nodes_of_one_person_give_one_answer(tmp_path):
    def device(context):
        return Device([2.0, 0.0], 1, 1.0, tmp_path / "one")

    agents, answers = ask(Hall({1: client_app(device), 2: client_app(device)}), 2)
    assert len(answers) == 1
    assert agents.unanswered == 1


def test_the_server_is_not_told_why_a_device_failed():
    def device(context):
        raise ValueError("my income is 12345")

    replies = []
    app = client_app(device)
    hall = Hall({1: lambda message, context: replies.append(app(message, context)) or replies[-1]})
    assert len(ask(hall, 1)[1]) == 0
    assert dict(replies[0].content["dpadapt"]) == {"refused": "ValueError"}


def test_nodes_that_join_later_can_be_asked_later(hall):
    small, large = hall(2), hall(5)
    agents = FlowerAgents(small, 1.0, timeout=0.3)
    agents.ask(QUESTION, 2)
    with pytest.raises(PrivacyError, match="only 0 have not been asked"):
        agents.ask(QUESTION, 1)
    small.apps.update(large.apps)
    assert agents.available == 3
    assert len(agents.ask(QUESTION, 3)) == 3


def test_a_question_that_cannot_be_sent_is_refused_before_anybody_is_asked(hall):
    class Constant:
        def predict(self, X):
            return np.ones(len(X))

    agents = FlowerAgents(hall(), 1.0, timeout=0.3)
    with pytest.raises(TypeError, match="can't be sent"):
        agents.ask(LossQuestion(Constant()), 4)
    assert agents.asked == 0


def test_a_loss_is_tested_through_flower(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)

    def device(context):
        return Device([2.0, 0.0], 1, 6.0, tmp_path / str(context.node_id))

    hall = Hall({node: client_app(device) for node in range(1, 61)})
    agents = FlowerAgents(hall, 6.0, timeout=5.0, n_people=60)
    verdict = decide(agents, QUESTION, 0.1, 0.6, error=1e-3)
    assert verdict.accepted
    assert verdict.asked == agents.asked < 60


def test_a_classifier_is_fitted_with_people_asked_through_flower(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    rng = np.random.default_rng(0)
    X, people = rng.uniform(-1, 1, (4000, 2)), rng.uniform(-1, 1, (1500, 2))

    def device(context):
        x = people[context.node_id - 1]
        return Device(x, int(x[0] > 0), 4.0, tmp_path / str(context.node_id))

    app = client_app(device)
    agents = FlowerAgents(Hall(dict.fromkeys(range(1, 1501), app)), 4.0, timeout=60.0, n_people=1500)
    model = SubsampleTestReweigh(alpha=0.1, random_state=0).fit(X, (X[:, 0] > 0).astype(int), agents=agents)
    assert model.accepted_
    assert model.users_asked_ == agents.asked == len(list(tmp_path.iterdir()))
    assert model.score(people, people[:, 0] > 0) > 0.8


def test_a_run_on_flowers_simulation_with_dropped_and_duplicate_clients(tmp_path):
    driver = Path(__file__).parent / "flower_driver.py"
    done = subprocess.run(
        [sys.executable, str(driver), str(tmp_path)], capture_output=True, text=True, env=QUIET, timeout=300, check=True
    )
    found = json.loads(re.search(r"^FOUND (.*)$", done.stdout, flags=re.MULTILINE).group(1))
    bits = [bit for some in found["bits"] for bit in some]
    # 24 nodes: 4 are off, and of two pairs that are one person each the second is refused by its device.
    assert len(bits) == 18
    assert set(bits) <= {-1, 1}
    assert found["asked"] == 24
    # Every message is sent twice and every reply handed over twice: three more copies of 18 bits, four of 6 refusals.
    assert found["refused"] == {"duplicate": 54}
    assert found["unanswered"] == 24
    assert len(list(tmp_path.iterdir())) == 18


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_run_of_separate_processes_on_loopback(tmp_path):
    home, tools, port = tmp_path / "home", Path(sys.executable).parent, free_port()
    home.mkdir()
    address = f"127.0.0.1:{port}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{address}"\ninsecure = true\n'
    )
    environment = {**QUIET, "FLWR_HOME": str(home), "PATH": f"{tools}:{QUIET['PATH']}"}
    started = []

    def start(*command):
        log = (tmp_path / f"log {len(started)}").open("w")
        started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        log.close()

    try:
        start("flower-superlink", "--insecure", "--disable-runtime-dependency-installation", "--port", str(port))
        wait_for(port)
        for person in range(4):
            config = f'partition-id={person} memory="{tmp_path}/person {person}"'
            node = "--insecure", "--superlink", address, "--port", str(free_port()), "--node-config", config
            start("flower-supernode", *node)
        first, second = (
            subprocess.run(
                ["flwr", "run", str(APP), "here", "--stream"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=400,
                check=True,
            ).stdout
            for _ in range(2)
        )
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=30)
    said = r"(\d) answers of range\((\d), (\d)\), (\d) refused"
    assert re.findall(said, first) == [("2", "0", "2", "0"), ("2", "2", "4", "0")]
    assert re.findall(said, second) == [("0", "0", "2", "2"), ("0", "2", "4", "4")]
    assert all(len(path.read_text().split()) == 3 for path in tmp_path.glob("person *"))
    assert len(list(tmp_path.glob("person *"))) == 4


def wait_for(port, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")
