"""What the model is shown: a conversation that every journal has, however it was cut off.

Messages stand where they were first shown: `TurnStarted` and `ModelCalled` name the ones they take. What was cut off
stays, and is followed by a note that says so; such notes stand in a tag that nobody else can write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure import events as e

TAG = "runtime-note"


@dataclass(frozen=True, slots=True)
class UserSaid:
    """What people, and the runtime in its tag, said between two answers."""

    parts: tuple[e.Part, ...]


@dataclass(frozen=True, slots=True)
class ModelSaid:
    """An answer, or as much as there was of one."""

    parts: tuple[e.ReplyPart, ...]
    model: str = ""
    """Whose answer it is, as `provider:name`: sealed thinking goes back to nobody else."""


@dataclass(frozen=True, slots=True)
class ToolSaid:
    """What became of one tool call."""

    call_id: str
    name: str
    parts: tuple[e.Part, ...]
    failed: bool


Message = UserSaid | ModelSaid | ToolSaid


class Context:
    """What has been said so far; `add` every event of a session in order, and ask for `messages` at any time."""

    def __init__(self) -> None:
        self._said: list[tuple[e.Seq, Message]] = []
        """Each with the record it comes from."""
        self._waiting: dict[e.Seq, UserSaid] = {}
        self._excluded: set[e.Seq] = set()
        self._asked: dict[e.Seq, str] = {}
        """Of each open call, which model it went to."""

    def add(self, event: e.Event) -> None:
        fact, seq = event.fact, event.seq
        match fact:
            case e.MessageSent(parts=parts, attachments=attachments):
                self._waiting[seq] = _said(parts, attachments)
            case e.MessageEdited(message=message, parts=parts, attachments=attachments):
                self._waiting[message] = _said(parts, attachments)
            case e.MessageWithdrawn(message=message):
                self._waiting.pop(message, None)
            case e.TurnStarted(takes=takes):
                self._take(takes)
            case e.ModelCalled(takes=takes, purpose="answer"):
                self._take(takes)
                self._asked[seq] = f"{fact.provider}:{fact.model}"
            case e.ModelReplied(call=call, parts=parts) if call in self._asked:
                self._said.append((seq, ModelSaid(parts, self._asked.pop(call))))
            case e.ModelLost(call=call, reason=reason, parts=parts) if call in self._asked:
                model = self._asked.pop(call)
                # What it thought stays on the screen; the wish for a tool that it was still writing is nobody's.
                if text := tuple(part for part in parts if isinstance(part, e.Text) and part.text.strip()):
                    cut = UserSaid((note(f"Your answer was cut off here ({reason})."),))
                    self._said += [(seq, ModelSaid(text, model)), (seq, cut)]
            case e.ToolFinished(call_id=call_id, outcome=outcome, parts=parts, exit_code=code) if call_id:
                said = (*parts, note(f"exit code {code}")) if code else parts
                self._said.append((seq, ToolSaid(call_id, self._name_of(call_id), said, outcome != "ok")))
            case e.RecordExcluded(record=record):
                self._excluded.add(record)
            case e.RecordIncluded(record=record):
                self._excluded.discard(record)
            case e.ContextCleared(carried=False):
                self._said.clear()
            case _:
                pass

    def _take(self, messages: Sequence[e.Seq]) -> None:
        self._said += [(n, self._waiting.pop(n)) for n in messages if n in self._waiting]

    def _name_of(self, call_id: str) -> str:
        """The tool that the last answer wished for under this id."""
        for _, message in reversed(self._said):
            if isinstance(message, ModelSaid):
                return next((w.name for w in _wishes(message) if w.call_id == call_id), "")
        return ""

    def messages(self) -> list[Message]:
        """In the order in which they were first shown, every wish with its result, one user's message at a time."""
        return _joined(_paired([said for seq, said in self._said if seq not in self._excluded]))


def note(text: str) -> e.Text:
    """Words of the runtime to the model."""
    return e.Text(f"<{TAG}>{text}</{TAG}>")


def _said(parts: tuple[e.Part, ...], attachments: tuple[e.Attachment, ...]) -> UserSaid:
    return UserSaid((*(_without_tag(part) for part in parts), *(one.content for one in attachments)))


def _wishes(message: Message) -> list[e.ToolCall]:
    said = message.parts if isinstance(message, ModelSaid) else ()
    return [part for part in said if isinstance(part, e.ToolCall)]


def _without_tag(part: e.Part) -> e.Part:
    if isinstance(part, e.Text) and TAG in part.text:
        return e.Text(part.text.replace(f"<{TAG}", f"&lt;{TAG}").replace(f"</{TAG}", f"&lt;/{TAG}"))
    return part


def _paired(messages: Sequence[Message]) -> list[Message]:
    """Every wish with its result, and no result without its wish."""
    shown: list[Message] = []
    open_wishes: dict[str, e.ToolCall] = {}
    for message in messages:
        if isinstance(message, ToolSaid):
            if open_wishes.pop(message.call_id, None):
                shown.append(message)
            continue
        shown += [_no_result(wish) for wish in open_wishes.values()]
        open_wishes = {wish.call_id: wish for wish in _wishes(message)}
        shown.append(message)
    return shown + [_no_result(wish) for wish in open_wishes.values()]


def _no_result(wish: e.ToolCall) -> ToolSaid:
    return ToolSaid(wish.call_id, wish.name, (note("There is no result of this call."),), True)


def _joined(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        if isinstance(message, UserSaid) and isinstance(last, UserSaid):
            joined[-1] = UserSaid(last.parts + message.parts)
        else:
            joined.append(message)
    return joined
