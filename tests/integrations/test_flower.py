"""People asked through Flower: in one process, in Flower's simulation, and as separate processes."""

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

from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
from dpadapt.integrations.device import Device, unpack
from dpadapt.integrations.flower import FlowerAgents, client_app
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

QUESTION = LossQuestion(LinearHypothesis([1.0, 0.0]))
APP = Path(__file__).parents[2] / "examples" / "federated_app"
QUIET = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


# Stands for bytes that Flower can't make a message of: the call that pulls them fails, and its other replies are lost.
UNREADABLE = object()


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
                reply = manner(message, reply)
            if manner == "failing":
                reply = Message(Error(1, "failed"), reply_to=message)
            if manner == "somebody else":
                reply.metadata.__dict__["_src_node_id"] = 999
            self._replies[name] = [reply] * (3 if manner == "thrice" else 1)
        return ids

    def pull_messages(self, ids):
        replies = [reply for name in ids for reply in self._replies.pop(name, [])]
        if any(reply is UNREADABLE for reply in replies):
            raise ValueError("unexpected structure")
        return replies


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


def test_duplicate_answers_are_refused(hall):
    agents, answers = ask(hall(manners={1: "thrice", 5: "thrice"}))
    assert len(answers) == 8
    assert agents.reception.refused == Counter(duplicate=4)


def test_late_answers_are_refused(hall):
    agents = FlowerAgents(hall(manners={1: "late", 2: "late", 3: "late"}), 1.0, timeout=0.3)
    agents._nodes.sort()
    assert len(agents.ask(QUESTION, 3)) == 0
    assert len(agents.ask(QUESTION, 5)) == 5
    assert agents.reception.refused == Counter(late=3)
    assert len(agents.record[0].bits) == 0


def content(message, fields):
    """Return a reply with these fields, and with the name of the request in place of NAME."""
    name = unpack(bytes(message.content["dpadapt"]["sent"]))["name"]
    fields = {key: name if value == "NAME" else value for key, value in fields.items()}
    return Message(RecordDict({"dpadapt": ConfigRecord(fields)}), reply_to=message)


def lie(fields):
    return lambda message, reply: content(message, fields)


LIES = [lie({"name": "NAME", "bit": value}) for value in (0, 2, 1.0, True, "1", [1, 1], b"1", 2**62, -(2**62))] + [
    lie({}),
    lie({"name": "NAME"}),
    lie({"bit": 1}),
    lie({"name": 5, "bit": 1}),
    lie({"name": ["NAME"], "bit": 1}),
    lie({"name": "NAME", "bit": 1, "more": 1}),
    lie({"name": "NAME", "refused": 5}),
    lie({"name": "NAME", "refused": "x" * 10_000}),
    lambda message, reply: Message(RecordDict({}), reply_to=message),
    lambda message, reply: Message(RecordDict({"other": ConfigRecord({"bit": 1})}), reply_to=message),
    lambda message, reply: Message(RecordDict({"dpadapt": MetricRecord({"bit": 1})}), reply_to=message),
]


@pytest.mark.parametrize("manner", LIES)
def test_malformed_replies_are_refused(hall, manner):
    agents, answers = ask(hall(manners={4: manner}))
    assert len(answers) == 7
    assert agents.reception.refused == Counter(malformed=1)


def with_metadata(**entries):
    """Return a manner that writes these entries into the reply, which Flower leaves to the sender."""

    def manner(message, reply):
        reply.metadata.__dict__.update({f"_{name}": value for name, value in entries.items()})
        return reply

    return manner


STRANGE = ["²", "9" * 5000, "-1", "٣", "0", "", "\x00", None, 1.5, -1, 2**70, b"0", [0], {}, float("nan")]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: str(value)[:8])
def test_no_group_crashes_the_server_or_changes_what_is_counted(hall, value):
    agents, answers = ask(hall(manners={4: with_metadata(group_id=value)}))
    assert len(answers) == 8
    assert agents.reception.refused == Counter()


@pytest.mark.parametrize("value", [*STRANGE, True], ids=lambda value: str(value)[:8])
@pytest.mark.parametrize("field", ["src_node_id", "reply_to_message_id"])
def test_a_reply_that_names_another_sender_or_request_is_refused(hall, field, value):
    agents, answers = ask(hall(manners={4: with_metadata(**{field: value})}))
    assert len(answers) == 7
    assert agents.reception.refused == Counter(stranger=1)


def test_one_node_cannot_answer_for_others(hall):
    """The attacker knows all nodes and all requests' identifiers, and writes any sender; names are secret."""
    made = hall(manners=dict.fromkeys(range(2, 9), "silent"))
    push = made.push_messages

    def pushed(messages):
        ids = push(messages)
        own = next(m for m in messages if m.metadata.dst_node_id == 1)
        for message in messages:
            name, node = message.metadata.message_id, message.metadata.dst_node_id
            if node == 1:
                continue
            forged = with_metadata(src_node_id=node, reply_to_message_id=name)
            made._replies[name] = [forged(message, content(own, {"name": "NAME", "bit": 1})) for _ in range(3)]
            # Its own request, again under the name of another node.
            renamed = with_metadata(src_node_id=node)
            made._replies[own.metadata.message_id].append(renamed(own, content(own, {"name": "NAME", "bit": 1})))
        return ids

    made.push_messages = pushed
    agents, answers = ask(made)
    assert len(answers) == 1
    assert agents._nodes[agents.record[0].people[agents.record[0].answered[0]]] == 1
    assert agents.reception.refused == Counter(stranger=28)


def test_a_reply_to_an_earlier_question_is_not_counted_for_a_later_one(tmp_path):
    kept = []

    def answer(message, context):
        kept.append(message)
        name = unpack(bytes(kept[0].content["dpadapt"]["sent"]))["name"]
        return Message(RecordDict({"dpadapt": ConfigRecord({"name": name, "bit": 1})}), reply_to=message)

    agents = FlowerAgents(Hall(dict.fromkeys(range(1, 5), answer)), 1.0, timeout=0.3)
    assert len(agents.ask(QUESTION, 1)) == 1
    assert len(agents.ask(QUESTION, 3)) == 0
    assert agents.reception.refused == Counter(stranger=3)


def test_a_reply_that_flower_cannot_read_costs_nobody_else_an_answer(hall):
    agents, answers = ask(hall(manners={4: lambda message, reply: UNREADABLE}))
    assert len(answers) == 7
    assert agents.reception.refused == Counter(unreadable=1)


def test_without_a_connection_the_error_is_shown_and_people_count_as_asked(hall):
    made = hall()
    agents = FlowerAgents(made, 1.0, timeout=0.3)

    def fail(ids):
        raise ConnectionError("no route to the SuperLink")

    made.pull_messages = fail
    with pytest.raises(ConnectionError, match="no route"):
        agents.ask(QUESTION, 3)
    assert (agents.asked, agents.available) == (3, 5)


def test_the_server_is_not_told_why_a_device_failed():
    def device(context):
        raise ValueError("my income is 12345")

    replies = []
    app = client_app(device)
    hall = Hall({1: lambda message, context: replies.append(app(message, context)) or replies[-1]})
    assert len(ask(hall, 1)[1]) == 0
    fields = dict(replies[0].content["dpadapt"])
    assert fields.keys() == {"name", "refused"}
    assert fields["refused"] == "ValueError"


def test_a_question_that_cannot_be_sent_is_refused_before_anybody_is_asked(hall):
    class Constant:
        def predict(self, X):
            return np.ones(len(X))

    agents = FlowerAgents(hall(), 1.0, timeout=0.3)
    with pytest.raises(TypeError, match="can't be sent"):
        agents.ask(LossQuestion(Constant()), 4)
    assert agents.asked == 0


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
