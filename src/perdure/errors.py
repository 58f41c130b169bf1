"""Everything a caller may catch.

One root, fields beside the prose, and a docstring that says what the caller can do. An error is raised where it
is noticed and caught only where something can be done about it.
"""

from __future__ import annotations

from collections.abc import Sequence

NOT_NATIVE = "Windows is not supported natively; install Perdure inside WSL, where it runs as on Linux"
"""Said by the command line, and to whoever imports the journal."""


class PerdureError(Exception):
    """The root: catch this to catch everything that Perdure raises on purpose."""


class ConfigError(PerdureError):
    """A setting, or an argument of `open`, is unknown, malformed, or may not be set there. Mend the place that `where`
    names."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class StoreError(PerdureError):
    """Something about the store as a whole. Nothing that was acknowledged is lost by it."""

    def __init__(self, store: str, why: str) -> None:
        super().__init__(f"{store.removesuffix(':')}: {why}")  # one store is called `memory:`
        self.store = store
        self.why = why


class StoreUnavailable(StoreError):
    """The store cannot be read or written just now: full disk, read-only folder, no server.

    Whatever was acknowledged before is stored. Whatever this call tried to append is not, unless its answer was lost
    on the way, or a disk failed to sync it and the process was killed before it could go on. Put right what the
    message names and append again under the same key: then it is there once.
    """


class NoStore(StoreUnavailable):
    """There is no store at this address yet, and whoever asked did not want one to be made. Check the address."""


class StoreDamaged(StoreError):
    """The file is not a store of ours, or parts of it cannot be read. Run `perdure doctor --salvage FILE`."""


class StoreTooNew(StoreError):
    """A newer Perdure laid this store out. Upgrade this one; nothing was changed."""


class WritesTooNew(StoreError):
    """A fact could not be written in the shapes this store allows. Raise its level after all are upgraded."""


class SessionError(PerdureError):
    """Something about one session, which `session` names."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(f"session {session}: {why}")
        self.session = session
        self.why = why


class SessionNotFound(SessionError):
    """No session has this id, prefix or title. `candidates` holds near misses, best first."""

    def __init__(self, session: str, why: str = "not found", candidates: Sequence[str] = ()) -> None:
        super().__init__(session, why)
        self.candidates = tuple(candidates)


class AmbiguousPrefix(SessionError):
    """Several sessions answer to this name. Choose one of `candidates`."""

    def __init__(self, session: str, candidates: Sequence[str]) -> None:
        super().__init__(session, f"several sessions match: {', '.join(candidates)}")
        self.candidates = tuple(candidates)


class PrefixTooShort(SessionError):
    """A prefix needs six characters. `candidates` holds what it would have matched."""

    def __init__(self, session: str, candidates: Sequence[str]) -> None:
        shown = f": {', '.join(candidates)}" if candidates else ""
        super().__init__(session, f"a prefix needs at least 6 characters{shown}")
        self.candidates = tuple(candidates)


class SessionExists(SessionError):
    """A session with this id is already stored. Nothing was written."""


class SessionEnded(SessionError):
    """The session has ended and takes no more messages. Reopen it, or start another."""


class SessionReadOnly(SessionError):
    """The journal holds facts that this build does not know. Read it here; go on with a newer Perdure."""


class NotOwner(SessionError):
    """Another process took this session over; stop working on it.

    Nothing was written. The facts you were about to append are now the new owner's business: it will find the
    gap in the journal and close it itself.
    """


class OwnedElsewhere(SessionError):
    """A living process runs this session. Attach to it (follow and send), or wait for it to let go."""

    def __init__(self, session: str, owner: str) -> None:
        super().__init__(session, f"is run by {owner}")
        self.owner = owner


class ModelUnknown(PerdureError):
    """No model answers to this name here: it is misspelt, or its provider has no key. The sentence says what to set."""

    def __init__(self, model: str, why: str) -> None:
        super().__init__(f"{model}: {why}")
        self.model = model
        self.why = why


class Busy(SessionError):
    """A turn runs that this would disturb. Stop the turn first, or ask for it to be stopped with this."""


class AlreadyAppended(SessionError):
    """This key was used before in this session, with other content. The first use stands, at `seq`."""

    def __init__(self, session: str, key: str, seq: int) -> None:
        super().__init__(session, f"key {key!r} was used at seq {seq} for something else")
        self.key = key
        self.seq = seq


class CursorAhead(SessionError):
    """This position lies beyond the end of the session: it belongs to another one, or to a store that was lost.

    Show the session anew, from a fresh read, and follow from that read's `upto`.
    """

    def __init__(self, session: str, after: int, head: int) -> None:
        super().__init__(session, f"ends at {head}, before position {after}")
        self.after = after
        self.head = head


class Refused(SessionError):
    """The journal's grammar does not allow this fact now: `why` says which law it would break.

    Nothing was written. For an answer this means the question is closed; for a turn, that the loop's picture of
    the session is behind.
    """


class NotStorable(PerdureError):
    """A value cannot be stored as it is (too large, not a number, not text). Nothing was written."""
