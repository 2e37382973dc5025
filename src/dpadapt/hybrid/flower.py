"""`FlowerAgents`: people on real devices, asked through Flower. Needs the extra `federated`.

The server's side is a Flower ServerApp that is given a `FlowerAgents` (`server_app`). The person's side is a Flower
ClientApp around a `Device`, which draws its own noise and answers once (`client_app`).
"""

import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.device import Device, pack, request
from dpadapt.hybrid.questions import Question
from dpadapt.mechanisms.randomness import SecureRandom

try:
    from flwr.app import ConfigRecord, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
except ModuleNotFoundError as error:
    if error.name != "flwr":
        raise
    raise ModuleNotFoundError(
        "dpadapt.hybrid.flower needs Flower: pip install 'dpadapt[federated]'.", name="flwr"
    ) from None

# The name of the one record in a message, and the names of its entries.
_RECORD, _SENT, _BIT, _REFUSED = "dpadapt", "sent", "bit", "refused"
# Seconds between two polls for nodes or replies: the first pause, which then doubles, and the longest. Short pauses
# notice replies sooner and poll more often. Chosen by hand.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class FlowerAgents(Agents):
    """The people of a Flower federation; each node is one person.

    Privacy
    -------
    Each device randomizes its own bit, so that nobody else is trusted: epsilon per person, delta = 0 (see `Device`).
    The server learns who was asked what and when each device answered. Therefore a device must not be slower for some
    records. Devices refuse a second question, whatever the server's record says.

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
        self._survey = secrets.token_hex(16)
        self._nodes: list[int] = []
        self._number: dict[int, int] = {}
        self._waiting: dict[str, int] = {}
        self.unanswered = 0
        n_people, deadline = checks.count(n_people, "n_people"), time.monotonic() + self._timeout
        while self._people_known() < n_people and time.monotonic() < deadline:
            time.sleep(_FIRST_PAUSE)

    def _coin_source(self) -> np.random.Generator:
        return self._random.generator

    def _people_known(self) -> int:
        """Return the number of nodes; new ones are appended in random order."""
        fresh = np.array(sorted(set(self._grid.get_node_ids()) - self._number.keys()), dtype=object)
        for node in self._random.generator.permutation(fresh):
            self._number[int(node)] = len(self._nodes)
            self._nodes.append(int(node))
        return len(self._nodes)

    def _prepare(self, question: Question) -> None:
        pack(question.message())  # raises a TypeError if the question can't be sent

    def _collect(self, question: Question, ticket: int, coins: NDArray[np.int64]) -> None:
        messages = []
        for person, coin in zip(self.reception.people(ticket), coins, strict=True):
            node = self._nodes[person]
            # The node is part of the name: two nodes of one person get two requests, and a device answers one.
            sent = request(question, coin, self.epsilon, f"{self._survey}/{ticket}/{node}")
            content = RecordDict({_RECORD: ConfigRecord({_SENT: sent})})
            messages.append(Message(content, node, MessageType.QUERY, ttl=self._timeout, group_id=str(ticket)))
        sent_ids = set(self._grid.push_messages(messages))
        self._waiting |= dict.fromkeys(sent_ids, ticket)
        deadline, pause = time.monotonic() + self._timeout, _FIRST_PAUSE
        # Replies to earlier questions are pulled, too: they are counted as late.
        while True:
            self._receive(self._grid.pull_messages(list(self._waiting)))
            if sent_ids.isdisjoint(self._waiting) or time.monotonic() > deadline:
                return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _receive(self, replies: Iterable[Any]) -> None:
        """Pass replies to the reception, each under the ticket of the message that it replies to."""
        answers: dict[int, list[tuple[int, int]]] = {}
        for reply in replies:
            ticket = self._waiting.pop(reply.metadata.reply_to_message_id, -1)
            if ticket < 0 and reply.metadata.group_id.isdigit():
                ticket = int(reply.metadata.group_id)  # a second reply to one message
            bit = _bit(reply)
            if bit is None:
                self.unanswered += 1
            else:
                answers.setdefault(ticket, []).append((self._number.get(reply.metadata.src_node_id, -1), bit))
        for ticket, pairs in answers.items():
            people, bits = np.array(pairs).T
            self.reception.receive(ticket, people, bits)


def _bit(reply: Any) -> int | None:
    """Return the bit of a reply: 0 if the reply is malformed, None if the device refused or failed."""
    if reply.has_error():
        return None
    record = reply.content.get(_RECORD)
    if not isinstance(record, ConfigRecord) or set(record) not in ({_BIT}, {_REFUSED}):
        return 0
    if _REFUSED in record:
        return None
    bit = record[_BIT]
    return bit if type(bit) is int and bit in (-1, 1) else 0


def client_app(device: Callable[[Any], Device]) -> Any:
    """Return the ClientApp of a person.

    Parameters
    ----------
    device : callable
        Takes Flower's Context of the node, whose `node_config` holds the settings that the node was started with, and
        returns the person's `Device`.
    """

    def answer(message: Any, context: Any) -> Any:
        content: dict[str, Any]
        try:
            content = {_BIT: device(context).answer(bytes(message.content[_RECORD][_SENT]))}
        except Exception as refusal:
            # Only the type of the exception: Flower would send its whole text to the server.
            content = {_REFUSED: type(refusal).__name__}
        return Message(RecordDict({_RECORD: ConfigRecord(content)}), reply_to=message)

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
