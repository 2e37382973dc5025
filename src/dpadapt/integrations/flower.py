"""`FlowerAgents`: people on real devices, asked through Flower. Needs the extra `federated`.

The server's side is a Flower ServerApp that is given a `FlowerAgents` (`server_app`). The person's side is a Flower
ClientApp around a `Device`, which draws its own noise and answers once (`client_app`).

What a hostile node can do, whatever bytes it sends: give any bit, or none, in reply to its own request, so that it
moves an estimate by no more than one answer; read its own request, which holds the question and a public coin; be
silent, which delays the question until `timeout`; and send bytes as fast as Flower accepts them. Whoever connects
several nodes has an answer for each: who may connect is for Flower's node authentication to decide.

What it can't do: answer for another node, answer twice, answer a question that it was not asked or that is closed, make
other people's answers be lost, or make the server fail or run code. A reply is looked for under one request at a time,
read in one place (`Sent.read`), and accepted only if it repeats the secret name of that request. What a reply says
about its sender and its group never decides what it counts for: in Flower, the sender writes these fields itself.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.questions import Question
from dpadapt.integrations.device import Device, Sent, pack, reply_to, request
from dpadapt.mechanisms.randomness import SecureRandom

try:
    from flwr.app import ConfigRecord, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
except ModuleNotFoundError as error:
    if error.name != "flwr":
        raise
    raise ModuleNotFoundError(
        "dpadapt.integrations.flower needs Flower: pip install 'dpadapt[federated]'.", name="flwr"
    ) from None

# The name of the one record in a message, and the name of the request in it.
_RECORD, _SENT = "dpadapt", "sent"
# Seconds between two polls for nodes or replies: the first pause, which then doubles, and the longest. Short pauses
# notice replies sooner and poll more often. Chosen by hand.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class FlowerAgents(Agents):
    """The people of a Flower federation; each node is one person.

    **Privacy.** Each device randomizes its own bit, so that nobody else is trusted: epsilon per person, delta = 0 (see
    `Device`). The server learns who was asked what and when each device answered. Therefore a device must not be slower
    for some records. Devices refuse a second question, whatever the server's record says.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The grid that Flower passes to a ServerApp.
    epsilon : float
        What an answer costs the person who gives it. Devices that allow less refuse.
    timeout : float, default=60.0
        Seconds to wait for answers. Later answers are refused.
    n_people : int, default=1
        Wait until this many nodes are connected, `timeout` seconds at most.

    Attributes
    ----------
    unanswered : int
        How many replies said that the device refused or failed.
    """

    def __init__(self, grid: Any, epsilon: float, *, timeout: float = 60.0, n_people: int = 1) -> None:
        super().__init__(epsilon)
        self._grid = grid
        self._timeout = checks.positive(timeout, "timeout")
        self._random = SecureRandom()
        self._nodes: list[int] = []
        self._silent: dict[str, Sent] = {}
        self.unanswered = 0
        n_people, deadline = checks.count(n_people, "n_people"), time.monotonic() + self._timeout
        while self._people_known() < n_people and time.monotonic() < deadline:
            time.sleep(_FIRST_PAUSE)

    def _coin_source(self) -> np.random.Generator:
        return self._random.generator

    def _people_known(self) -> int:
        """Return the number of nodes; new ones are appended in random order."""
        fresh = np.array(sorted(set(self._grid.get_node_ids()) - set(self._nodes)), dtype=object)
        self._nodes += [int(node) for node in self._random.generator.permutation(fresh)]
        return len(self._nodes)

    def _prepare(self, question: Question) -> None:
        pack(question.message())  # raises a TypeError if the question can't be sent

    def _collect(self, question: Question, ticket: int, coins: NDArray[np.int64]) -> None:
        waiting = self._send(question, ticket, coins)
        deadline, pause = time.monotonic() + self._timeout, _FIRST_PAUSE
        failure: Exception | None = None
        reached = False
        while True:
            for sent in list(waiting.values()):
                try:
                    # One request at a time: a reply that Flower can't read takes all replies of its call with it.
                    replies = list(self._grid.pull_messages([sent.message]))
                except Exception as error:
                    failure = error
                    self.reception.refuse("unreadable")
                    continue
                reached = True
                # Each reply is read, also after the first: further ones are counted.
                replied = [self._receive(reply, sent) for reply in replies]
                if any(replied):
                    del waiting[sent.message]
            if not waiting or time.monotonic() > deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._receive_late()
        self._silent = waiting
        # No node can make the calls for all others fail, too: there is no connection.
        if failure is not None and not reached:
            raise failure

    def _send(self, question: Question, ticket: int, coins: NDArray[np.int64]) -> dict[str, Sent]:
        """Send each person of `ticket` a request under a secret name; return the requests by Flower's message names."""
        names, messages = [], []
        for person, coin in zip(self.reception.people(ticket), coins, strict=True):
            # Fresh for each request: two nodes of one person get two different requests, and a device answers one.
            names.append(secrets.token_hex(16))
            sent = request(question, coin, self.epsilon, names[-1])
            content = RecordDict({_RECORD: ConfigRecord({_SENT: sent})})
            messages.append(Message(content, self._nodes[person], MessageType.QUERY, ttl=self._timeout))
        accepted = set(self._grid.push_messages(messages))
        requests = [
            Sent(message.metadata.message_id, self._nodes[person], ticket, person, name)
            for person, name, message in zip(self.reception.people(ticket), names, messages, strict=True)
        ]
        return {sent.message: sent for sent in requests if sent.message in accepted}

    def _receive_late(self) -> None:
        """Count replies to earlier questions: these are closed, so that nothing is lost if one can't be read."""
        if not self._silent:
            return
        try:
            replies = list(self._grid.pull_messages(list(self._silent)))
        except Exception:
            self.reception.refuse("unreadable")
            replies = []
        for reply in replies:
            name = _attribute(reply, "metadata", "reply_to_message_id")
            sent = self._silent.get(name) if type(name) is str else None
            if sent is None:
                self.reception.refuse("stranger")
            else:
                self._receive(reply, sent)

    def _receive(self, reply: Any, sent: Sent) -> bool:
        """Count a reply that was found under `sent`; return whether the node that was asked has replied."""
        if _failed(reply):
            self.unanswered += 1
            return True
        message, node = (_attribute(reply, "metadata", name) for name in ("reply_to_message_id", "src_node_id"))
        kind, bit = sent.read(message, node, _fields(reply))
        if kind == "answer":
            self.reception.receive(sent.ticket, np.array([sent.person]), np.array([bit]))
        elif kind == "refusal":
            self.unanswered += 1
        else:
            self.reception.refuse(kind)
        return kind != "stranger"


def _attribute(reply: Any, *names: str) -> Any:
    """Return an attribute of what Flower made of a node's bytes, which may be no message at all; None if it fails."""
    try:
        for name in names:
            reply = getattr(reply, name)
    except Exception:
        return None
    return reply


def _failed(reply: Any) -> bool:
    """Return whether a reply is Flower's message that the device could not be reached, or failed."""
    return isinstance(reply, Message) and bool(reply.has_error())


def _fields(reply: Any) -> dict[Any, Any] | None:
    """Return the fields of a reply, or None if it has no record of ours."""
    try:
        record = reply.content.get(_RECORD) if list(reply.content) == [_RECORD] else None
        return dict(record) if isinstance(record, ConfigRecord) else None
    except Exception:
        return None


def client_app(device: Callable[[Any], Device]) -> Any:
    """Return the ClientApp of a person.

    Parameters
    ----------
    device : callable
        Takes Flower's Context of the node, whose `node_config` holds the settings that the node was started with, and
        returns the person's `Device`.
    """

    def answer(message: Any, context: Any) -> Any:
        sent = b""
        try:
            sent = bytes(message.content[_RECORD][_SENT])
            fields = reply_to(sent, device(context).answer(sent))
        except Exception as error:
            # An exception that is raised here would be sent to the server, with its whole text.
            fields = reply_to(sent, None, error)
        return Message(RecordDict({_RECORD: ConfigRecord(fields)}), reply_to=message)

    app = ClientApp()
    app.query()(answer)
    return app


def server_app(survey: Callable[[FlowerAgents], Any], epsilon: float, **settings: Any) -> Any:
    """Return a ServerApp that passes the people of its federation to `survey`.

    Parameters
    ----------
    survey : callable
        Takes the `FlowerAgents` and asks them; it must save its own results.
    epsilon, settings
        As in `FlowerAgents`.
    """

    def main(grid: Any, context: Any) -> None:
        survey(FlowerAgents(grid, epsilon, **settings))

    app = ServerApp()
    app.main()(main)
    return app
