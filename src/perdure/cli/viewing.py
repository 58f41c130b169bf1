"""What a terminal shows of a turn: words as they become durable, each once, and how it ended."""

from __future__ import annotations

import sys
from typing import Any

from perdure import events as e
from perdure.cli import door
from perdure.codec import encode

DONE, FAILED, NEEDS_APPROVAL, CANCELLED, STOPPED = 0, 1, 5, 130, 143


class Viewer:
    """Follows one session from the outside, for as long as it takes to answer one message."""

    def __init__(self, message: e.Seq, as_json: bool) -> None:
        self.code: int | None = None
        """With what the program is to exit, once that is known."""
        self.stopped_by = 0
        """The code of the signal that asked for an end; 0 while nobody has."""
        self._message = message
        self._as_json = as_json
        self._turn = 0
        self._shown: dict[e.Seq, str] = {}
        """Of each call, the words that were shown."""

    def show(self, event: e.Event) -> None:
        if self._as_json:
            _print(encode(event).decode() + "\n")
        match event.fact:
            case e.TurnStarted(takes=takes) if self._message in takes:
                self._turn = event.seq
            case e.MessageWithdrawn(message=message) if message == self._message:
                self.code = self.stopped_by or CANCELLED
            case e.TurnEnded(turn=turn) as ended:
                self._ended(ended, mine=turn == self._turn)
            case _ if self._turn:
                self._during(event)

    def _during(self, event: e.Event) -> None:
        match event.fact:
            case e.ModelCalled(purpose="answer"):
                self._shown[event.seq] = ""
            case e.ModelSpoke(call=call, text=text, channel="text") if call in self._shown:
                self._say(call, text)
            case e.ModelReplied(call=call, parts=parts) if call in self._shown:
                # Pieces may be missing: this holds all of it.
                whole = "".join(part.text for part in parts if isinstance(part, e.Text))
                self._say(call, whole.removeprefix(self._shown[call]))
                self._end_line(call)
            case e.ModelLost(call=call) as lost if call in self._shown:
                self._end_line(call)
                again = "; it is tried again" if lost.retry_at is not None else ""
                self._tell(f"perdure: the answer was cut off ({lost.error or lost.reason}){again}")
            case e.ToolStarted(name=name, arguments=arguments):
                self._tell(f"perdure: {name} {arguments}")
            case e.ToolFinished(outcome=outcome) if outcome != "ok":
                self._tell(
                    f"perdure: the tool {'was ' if outcome in ('cancelled', 'denied') else ''}{outcome}"
                )
            case e.ApprovalAsked(summary=summary):
                self._tell(f"perdure: a person has to be asked: {summary}")
                self.code = NEEDS_APPROVAL
            case e.QuestionAsked(questions=questions):
                self._tell(f"perdure: a person has to be asked: {questions[0].text}")
                self.code = NEEDS_APPROVAL
            case _:
                pass

    def _ended(self, ended: e.TurnEnded, mine: bool) -> None:
        if not mine:
            if not self._turn:
                self._tell(f"perdure: an earlier turn ended as {ended.outcome}: {ended.cause}")
            return
        codes: dict[str, int] = {"completed": DONE, "failed": FAILED, "cancelled": CANCELLED}
        self.code = codes.get(ended.outcome, self.stopped_by or FAILED)
        if ended.outcome != "completed":
            self._tell(
                f"perdure: the turn {ended.outcome if ended.outcome == 'failed' else 'was ' + ended.outcome}: {ended.cause}"
            )

    def _say(self, call: e.Seq, text: str) -> None:
        self._shown[call] += text
        if not self._as_json:
            _print(_for_terminal(text) if sys.stdout.isatty() else text)

    def _end_line(self, call: e.Seq) -> None:
        if self._shown[call] and not self._shown[call].endswith("\n") and not self._as_json:
            _print("\n")

    def _tell(self, sentence: str) -> None:
        if not self._as_json:
            door.tell(door.plain(sentence))


def _for_terminal(text: str) -> str:
    return "".join(c if c in "\n\t" else door.plain(c) for c in text)


def _print(text: str) -> None:
    out: Any = sys.stdout
    out.write(text)
    out.flush()
