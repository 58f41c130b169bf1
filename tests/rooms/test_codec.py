"""Facts to and from their stored form: nothing is lost, and bytes that are no event are never anything worse."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import events as e
from perdure.codec import KINDS, decode, encode, joined, pack, unpack
from perdure.errors import NotStorable
from perdure.testing.lively import NASTY, lawful
from perdure.views.head import Head
from tests.facts import EVENTS, TEXT, of_kind

pytestmark = pytest.mark.filterwarnings("error")


def event(fact: e.AnyFact | e.Unknown, seq: int = 1, key: str | None = None) -> e.Event:
    return e.Event(seq, 5, 0, key, fact)  # type: ignore[arg-type]


def said(text: str) -> e.Event:
    return event(e.MessageSent(parts=(e.Text(text),)))


def stored(fact: object, envelope: tuple[object, ...] = (7, 5, 0, None)) -> bytes:
    return json.dumps([*envelope, fact]).encode()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_fact_comes_back_as_it_was(kind: type[e.Fact]) -> None:
    @given(of_kind(kind), st.integers(1, 1 << 62), st.none() | TEXT)
    def comes_back(fact: e.AnyFact, seq: int, key: str | None) -> None:
        there = event(fact, seq, key)
        assert decode(encode(there)) == there

    comes_back()


def test_every_character_there_is_comes_back() -> None:
    for begin in range(0, sys.maxunicode + 1, 0x4000):
        # From the last to the first, or a high surrogate would meet a low one.
        there = said("".join(map(chr, reversed(range(begin, begin + 0x4000)))))
        assert decode(encode(there)) == there


@pytest.mark.parametrize("text", NASTY)
def test_any_text_comes_back_from_one_line_of_utf_8(text: str) -> None:
    data = encode(said(text))
    assert decode(data) == said(text)
    assert b"\n" not in data
    assert data.startswith(b"[")
    assert json.loads(data.decode())[4]["parts"][0]["text"] == text


def test_halves_of_a_pair_are_the_character_they_stand_for_and_lone_halves_stay() -> None:
    halves = "\ud83d" + "\ude00"
    fact = e.MessageSent((e.Text(f"{halves} \ud83d \ude00\ud83d"), e.Blob("ab", 1, name=halves)))
    whole = e.MessageSent((e.Text("\U0001f600 \ud83d \ude00\ud83d"), e.Blob("ab", 1, name="\U0001f600")))
    assert joined(fact) == whole
    assert decode(encode(event(whole))) == event(whole)
    assert joined(whole) == whole
    with pytest.raises(NotStorable):
        encode(event(fact))


def test_only_characters_are_joined() -> None:
    bad = e.MessageSent((e.Text(b"bytes"), e.Text("\ud83d")))  # type: ignore[arg-type]
    assert joined(bad) is bad


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1])
def test_whole_numbers_come_back_exactly(number: int) -> None:
    there = event(e.ContextCompacted("s", number, number, number, 1, 1, 1, "model"))
    assert decode(encode(there)) == there


@pytest.mark.parametrize("number", [0.1 + 0.2, 1e308, 5e-324, -0.0, 1 / 3])
def test_reals_come_back_exactly(number: float) -> None:
    there = event(e.ModeRouted("plan", "forced", score=number))
    assert decode(encode(there)) == there


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_refused(number: float) -> None:
    with pytest.raises(NotStorable):
        encode(event(e.ModeRouted("plan", "forced", score=number)))


@pytest.mark.parametrize("fact", [e.Unknown("Kind"), e.Unreadable("why"), e.Erased()])
def test_how_a_row_is_read_is_nothing_to_write(fact: e.Unknown) -> None:
    with pytest.raises(NotStorable):
        encode(event(fact))


def test_fields_that_were_not_given_take_no_room() -> None:
    assert encode(event(e.MessageSent((e.Text("x"),)))) == (
        b'[1,5,0,null,{"kind":"MessageSent","parts":[{"kind":"Text","text":"x"}]}]'
    )


# --- newer builds


@pytest.mark.parametrize(
    "fact",
    [
        {
            "kind": "DreamDreamt",
            "of": ["electric", "sheep"],
            "deep": {"er": [1, 2.5, None, True, "\ud800\0\u2028"]},
        },
        {"kind": "MessageSent", "parts": [{"kind": "Text", "text": "x"}], "mood": "hopeful"},
        {"kind": "MessageSent", "parts": [{"kind": "Hologram", "size": 3}]},
        {"kind": "MessageSent", "parts": [{"kind": "Text", "text": "x", "colour": "red"}]},
        {"kind": "RunAsked", "how": "sideways"},
        {"kind": "TurnStarted"},
        {"kind": ""},
        {"kind": "Unknown", "of": "Unknown"},
        {"kind": "Erased"},
        {"kind": "x", "number": 123456789012345678901234567890, "real": 0.1},
    ],
)
def test_a_newer_fact_is_carried_whole(fact: dict[str, object]) -> None:
    found = decode(stored(fact))
    assert (found.seq, found.ts, found.epoch, found.key) == (7, 5, 0, None)
    assert isinstance(found.fact, e.Unknown)
    assert found.fact.kind == fact["kind"]
    assert json.loads(found.fact.data) == fact


def test_newer_facts_stand_among_older_ones() -> None:
    assert decode(stored({"kind": "DreamDreamt"}, (9, 8, 7, "key"))).key == "key"
    assert decode(stored({"kind": "SessionPinned"})) == e.Event(7, 5, 0, None, e.SessionPinned())


# --- what is no event

NO_EVENTS = [
    b"", b"[", b"null", b"[]", b"{}", b'""', b"5", b'"12345"', b"[1,2,3,4,5]", b"[1,2,3,null,{}]", b'[1,2,3,null,{"kind":5}]',
    b'["1",2,3,null,{"kind":"SessionPinned"}]', b'[1,2,true,null,{"kind":"SessionPinned"}]', b'[1,2,3,null,"kind"]',
    b'[1.5,2,3,null,{"kind":"SessionPinned"}]', b'[1,2,3,null,["kind"]]', b'[1,2,3,null,{"kind":"SessionPinned"}]x',
    b'{"a":1,"b":2,"c":3,"d":4,"kind":5}', b"\xff\xfe[", b"\0" * 9, b'[1,2,3,null,{"kind":"x","n":' + b"9" * 5000 + b"}]",
]  # fmt: skip


@pytest.mark.parametrize("data", NO_EVENTS)
def test_bytes_that_are_no_event_say_so(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an event"):
        decode(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_value_error(data: bytes) -> None:
    _decoded(data)


@given(EVENTS, st.data())
def test_no_damage_does_worse_than_a_value_error(there: e.Event, data: st.DataObject) -> None:
    whole = bytearray(encode(there))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    _decoded(bytes(whole))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(_JSON | st.lists(_JSON, min_size=5, max_size=5))
def test_no_json_does_worse_than_a_value_error(value: object) -> None:
    _decoded(json.dumps(value).encode())


@given(
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(st.sampled_from(["parts", "turn", "call"]) | TEXT, _JSON, max_size=4),
)
def test_any_object_with_a_kind_is_a_fact_or_unknown(kind: str, fields: dict[str, object]) -> None:
    found = decode(stored({**fields, "kind": kind}))
    assert isinstance(found.fact, KINDS[kind] | e.Unknown)


@pytest.mark.parametrize("shape", ["[{}]", '{{"a":{}}}'])
def test_no_depth_does_worse_than_a_value_error(shape: str) -> None:
    for depth in [*range(1, 60, 7), *range(150, 1100), 5000, 100_000]:
        before, after = shape.split("{}", 1) if shape == "[{}]" else ('{"a":', "}")
        nested = before * depth + "1" + after * depth
        _decoded(f'[1,2,3,null,{{"kind":"DreamDreamt","d":{nested}}}]'.encode())
        _decoded(f"[1,2,3,null,{nested}]".encode())
        _decoded(nested.encode())
        _unpacked(nested.encode())


def test_heads_come_back_whatever_is_in_them() -> None:
    for seed in range(6):
        head = Head()
        for each in lawful(seed, 60):
            head = head.after(each)
        assert unpack(pack(head), Head) == head


@given(st.binary(max_size=100) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_bytes_that_are_no_head_say_so(data: bytes) -> None:
    _unpacked(data)


def test_what_is_stored_is_plain_json_for_any_program() -> None:
    for each in lawful(4, 120):
        plain = json.loads(encode(each))
        assert plain[:4] == [each.seq, each.ts, each.epoch, each.key]
        assert plain[4]["kind"] == type(each.fact).__name__


def _decoded(data: bytes) -> None:
    try:
        found = decode(data)
    except ValueError:
        return
    assert isinstance(found, e.Event)


def _unpacked(data: bytes) -> None:
    try:
        found = unpack(data, Head)
    except ValueError:
        return
    assert isinstance(found, Head)
