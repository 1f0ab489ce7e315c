r"""Translate librdkafka's patterns (POSIX extended regular expressions) into a subset of RE2/J and Python's `re`.

librdkafka matches in the client with the C library's `regcomp(REG_EXTENDED)`, anywhere in a name; a pattern of a
subscription begins with `^`, which anchors only its first alternative. A KIP-848 broker matches whole names with RE2/J,
a classic member here with Python's `re`. The result of `translate` is for whole names and has the same meaning in both:
classes as the characters of topic names that they contain, groups without capture, and repetitions that cannot be read
as lazy or possessive.

The rules are glibc's: `\d` is the letter d, `\w` and `\b` are GNU's, `a**` repeats twice, and `(?` is an error because
there is nothing to repeat. Topic names consist of letters, digits, `.`, `_` and `-`; no other characters are
distinguished.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPattern

#: The characters of topic names (Kafka's `Topic.validate`), and their greatest length.
NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
LONGEST_NAME = 249
#: glibc's RE_DUP_MAX.
_MOST_REPETITIONS = 32_767
#: RE2/J repeats 1,000 times at most; more repetitions than the greatest length of a name change nothing.
_ENOUGH_REPETITIONS = LONGEST_NAME + 1
#: A character that no topic name has; it represents a class without any character of topic names.
_NEVER = "/"

_CLASSES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "alnum": frozenset(string.ascii_letters + string.digits),
        "alpha": frozenset(string.ascii_letters),
        "blank": frozenset(),
        "cntrl": frozenset(),
        "digit": frozenset(string.digits),
        "graph": NAME_CHARACTERS,
        "lower": frozenset(string.ascii_lowercase),
        "print": NAME_CHARACTERS,
        "punct": frozenset("._-"),
        "space": frozenset(),
        "upper": frozenset(string.ascii_uppercase),
        "xdigit": frozenset(string.hexdigits),
    }
)
_WORD_CHARACTERS = _CLASSES["alnum"] | {"_"}
#: GNU's classes outside of brackets.
_GNU_CLASSES: Mapping[str, frozenset[str]] = MappingProxyType(
    {"w": _WORD_CHARACTERS, "W": NAME_CHARACTERS - _WORD_CHARACTERS, "s": frozenset(), "S": NAME_CHARACTERS}
)
#: GNU's anchors; RE2/J has none for the start and the end of a word.
_GNU_ANCHORS: Mapping[str, str] = MappingProxyType(
    {"`": "^", "'": "$", "b": r"\b", "B": r"\B", "<": r"\b(?=\w)", ">": r"\b(?<=\w)"}
)
_OF_MEMBERS_ONLY = frozenset("<>")
#: Letters that are a class or an anchor after a backslash in RE2/J, and themselves in librdkafka.
_READ_OTHERWISE = frozenset("dDpPzAQEC")


#: Syntax that RE2/J reads and Python's `re` does not, or reads differently.
_RE2_ONLY = r"\\[pPQEzZC]|\[\[:|\(\?[a-zA-Z]*U|\(\?<(?![=!])"


class NotPosixError(ValueError):
    """The text is not a POSIX extended regular expression; `is_re2`: RE2/J may still be able to read it."""

    def __init__(self, reason: str, *, is_re2: bool = False) -> None:
        super().__init__(reason)
        self.is_re2 = is_re2


def translate(text: str) -> TopicPattern:
    """Return librdkafka's meaning of this pattern, for brokers and for members.

    Raises:
        NotPosixError: librdkafka rejects the pattern.
    """
    reader = _RegexReader(text, captures=False)
    whole = reader.whole()
    note = _note(text, reader.letters)
    if not reader.of_members_only:
        return TopicPattern(text=text, broker=whole, member=whole, note=note)
    if reader.has_references:
        whole = _RegexReader(text, captures=True).whole()
    return TopicPattern(text=text, broker=None, member=whole, note=note, of_members_only=reader.of_members_only)


def as_written(text: str) -> TopicPattern:
    """Return a pattern that is already RE2/J; members also use it if Python's `re` gives it the same meaning."""
    member = None
    if re.search(_RE2_ONLY, text) is None:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            # `re` raises the latter two for too many repetitions and for unclosed parentheses.
            return TopicPattern(text=text, broker=text, member=None)
        member = text
    return TopicPattern(text=text, broker=text, member=member)


def _note(text: str, letters: Iterable[str]) -> str:
    """Return a warning about letters that users of RE2/J or Python would read differently."""
    found = sorted(set(letters))
    if not found:
        return ""
    notes = ", ".join(f"`\\{letter}` is the letter {letter}" for letter in found)
    return f"in {text!r} {notes}, as in librdkafka (POSIX); for a digit write [0-9]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RegexPiece:
    """A part of the translation."""

    text: str
    #: Whether a following repetition repeats all of it.
    is_atom: bool = False
    #: Whether it matches only positions, no characters.
    is_place: bool = False
    #: Whether it can only match at the start of a name, or up to its end.
    opens: bool = False
    closes: bool = False


_NOTHING = _RegexPiece(text="", is_place=True)
_ANYTHING = _RegexPiece(text=".*", opens=True, closes=True)


class _RegexReader:
    """Read one pattern from left to right and write its translation."""

    def __init__(self, text: str, *, captures: bool) -> None:
        if "\0" in text:
            raise NotPosixError("it has a NUL character")
        self._text = text
        self._at = 0
        self._captures = captures
        self._groups = 0
        self._closed: set[int] = set()
        self.has_references = False
        #: Why only a member can match the pattern.
        self.of_members_only = ""
        #: Letters that would have a special meaning in RE2/J or Python.
        self.letters: list[str] = []

    # ---- the result ----

    def whole(self) -> str:
        """Return the translation, which matches whole names."""
        branches = self._branches(nest=0)
        return "|".join(_to_both_ends(branch) for branch in branches)

    # ---- the next character ----

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        taken = self._next
        self._at += 1
        return taken

    def _ends(self, nest: int) -> bool:
        """Return whether a branch ends here; without an open group, `)` is an ordinary character."""
        return self._next in ("", "|") or (nest > 0 and self._next == ")")

    # ---- structure ----

    def _branches(self, nest: int) -> list[_RegexPiece]:
        branches = [self._branch(nest)]
        while self._next == "|":
            self._at += 1
            branches.append(self._branch(nest))
        return branches

    def _branch(self, nest: int) -> _RegexPiece:
        pieces = []
        while not self._ends(nest):
            piece = self._expression(nest)
            if piece.text:
                pieces.append(piece)
        return _sequence(pieces)

    def _expression(self, nest: int) -> _RegexPiece:
        anchor = self._anchor()
        if anchor is not None:
            return anchor  # a repetition after it is an error: the star of `^*` has nothing to repeat
        piece = self._atom(nest)
        while self._next and self._next in "*+?{":
            piece = self._repeated(piece)
        return piece

    def _anchor(self) -> _RegexPiece | None:
        if self._next in ("^", "$"):
            return _place(self._take())
        if self._next == "\\" and self._text[self._at + 1 : self._at + 2] in _GNU_ANCHORS:
            name = self._text[self._at + 1 : self._at + 2]
            if name:
                self._at += 2
                if name in _OF_MEMBERS_ONLY:
                    self.of_members_only = f"RE2/J has no anchor for the start or the end of a word (`\\{name}`)"
                return _place(_GNU_ANCHORS[name])
        return None

    def _atom(self, nest: int) -> _RegexPiece:
        taken = self._take()
        match taken:
            case "(":
                return self._group(nest)
            case "[":
                return _any_of(self._bracket())
            case ".":
                return _RegexPiece(text=".", is_atom=True)
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{":
                is_re2 = taken == "?" and self._text[self._at - 2 : self._at - 1] == "("
                raise NotPosixError(f"`{taken}` has nothing to repeat", is_re2=is_re2)
            case _:
                return _literal(taken)

    def _group(self, nest: int) -> _RegexPiece:
        self._groups += 1
        number = self._groups
        branches = self._branches(nest + 1)
        if self._take() != ")":
            raise NotPosixError("a ( is not closed")
        self._closed.add(number)
        text = "|".join(branch.text for branch in branches)
        return _RegexPiece(
            text=f"({text})" if self._captures else f"(?:{text})",
            is_atom=True,
            is_place=all(branch.is_place for branch in branches),
            opens=all(branch.opens for branch in branches),
            closes=all(branch.closes for branch in branches),
        )

    def _escape(self) -> _RegexPiece:
        taken = self._take()
        if not taken:
            raise NotPosixError("it ends with a backslash")
        if taken in _GNU_CLASSES:
            return _any_of(_GNU_CLASSES[taken])
        if taken in "123456789":
            if int(taken) not in self._closed:
                raise NotPosixError(f"`\\{taken}` refers to a group that does not exist")
            self.has_references = True
            self.of_members_only = f"RE2/J has no back references (`\\{taken}`)"
            return _RegexPiece(text=f"(?:\\{taken})", is_atom=True)
        if taken in _READ_OTHERWISE:
            self.letters.append(taken)
        return _literal(taken)

    # ---- repetitions ----

    def _repeated(self, piece: _RegexPiece) -> _RegexPiece:
        taken = self._take()
        match taken:
            case "*":
                least, most = 0, None
            case "+":
                least, most = 1, None
            case "?":
                least, most = 0, 1
            case _:
                least, most = self._bounds()
        if most == 0 or (least == 0 and piece.is_place):
            return _NOTHING
        if piece.is_place:
            return piece
        atom = piece.text if piece.is_atom else f"(?:{piece.text})"
        sign = taken if taken != "{" else _count(least, most)
        return _RegexPiece(text=atom + sign) if piece.text != "." or sign != "*" else _ANYTHING

    def _bounds(self) -> tuple[int, int | None]:
        """Return the bounds in braces: `{2}`, `{2,}`, `{2,5}`, `{,5}`."""
        inside, brace, _ = self._text[self._at :].partition("}")
        if not brace:
            raise NotPosixError("a { is not closed")
        self._at += len(inside) + 1
        first, comma, last = inside.partition(",")
        if not all(part == "" or (part.isascii() and part.isdigit()) for part in (first, last)) or not inside:
            raise NotPosixError(f"{{{inside}}} is not a number of repetitions")
        least = int(first or 0)
        most = (int(last) if last else None) if comma else least
        if most is not None and most < least:
            raise NotPosixError(f"{{{inside}}} has its bounds in the wrong order")
        if max(least, most or 0) > _MOST_REPETITIONS:
            raise NotPosixError(f"{{{inside}}} repeats more than {_MOST_REPETITIONS} times")
        return least, most

    # ---- brackets ----

    def _bracket(self) -> frozenset[str]:
        """Return the characters of topic names in the class, after its opening bracket."""
        is_negated = self._next == "^"
        self._at += is_negated
        found: set[str] = set()
        is_first = True
        while is_first or self._next != "]":
            found |= self._bracket_element(is_first=is_first)
            is_first = False
        self._at += 1
        return NAME_CHARACTERS - found if is_negated else NAME_CHARACTERS & found

    def _bracket_element(self, *, is_first: bool) -> frozenset[str]:
        start = self._bracket_symbol(may_be_hyphen=is_first)
        after = self._text[self._at + 1 : self._at + 2]
        if not isinstance(start, str) or self._next != "-" or after == "]":
            return frozenset({start}) if isinstance(start, str) else start
        self._at += 1
        end = self._bracket_symbol(may_be_hyphen=True)
        if not isinstance(end, str) or ord(end) < ord(start):
            raise NotPosixError(f"a range in brackets that begins with {start!r} has an invalid end")
        return frozenset(one for one in NAME_CHARACTERS if start <= one <= end)

    def _bracket_symbol(self, *, may_be_hyphen: bool) -> str | frozenset[str]:
        """Return one character, or the characters of a named class."""
        taken = self._take()
        if not taken:
            raise NotPosixError("a [ is not closed")
        if taken == "-" and not may_be_hyphen and self._next != "]":
            raise NotPosixError("a - in brackets is neither in a range nor at an end")
        if taken != "[" or self._next not in (".", "=", ":"):
            return taken
        kind = self._take()
        name, closing, _ = self._text[self._at :].partition(f"{kind}]")
        if not closing:
            raise NotPosixError("a [ is not closed")
        self._at += len(name) + 2
        if kind == ":":
            if name not in _CLASSES:
                raise NotPosixError(f"[:{name}:] is not a character class", is_re2=True)
            return _CLASSES[name]
        if len(name) != 1:
            raise NotPosixError(f"[{kind}{name}{kind}] is not a character")
        return name if kind == "." else frozenset(name)


def _to_both_ends(branch: _RegexPiece) -> str:
    """Return the branch as a match of whole names: unanchored ends match anything."""
    before = "" if branch.opens else ".*"
    return before + branch.text + ("" if branch.closes else ".*")


def _sequence(pieces: list[_RegexPiece]) -> _RegexPiece:
    if len(pieces) == 1:
        return pieces[0]
    return _RegexPiece(
        text="".join(piece.text for piece in pieces),
        is_place=all(piece.is_place for piece in pieces),
        opens=bool(pieces) and pieces[0].opens,
        closes=bool(pieces) and pieces[-1].closes,
    )


def _place(text: str) -> _RegexPiece:
    return _RegexPiece(text=text, is_place=True, opens=text == "^", closes=text == "$")


def _literal(character: str) -> _RegexPiece:
    is_plain = not character.isascii() or character.isalnum() or character in "-_/ " or not character.isprintable()
    return _RegexPiece(text=character if is_plain else f"\\{character}", is_atom=True)


def _any_of(characters: frozenset[str]) -> _RegexPiece:
    if not characters:
        return _literal(_NEVER)
    if len(characters) == 1:
        return _literal(next(iter(characters)))
    if characters == NAME_CHARACTERS:
        return _RegexPiece(text=".", is_atom=True)
    return _RegexPiece(text=f"[{''.join(_runs(characters))}]", is_atom=True)


def _runs(characters: frozenset[str]) -> Iterable[str]:
    """Return the characters as ranges; the hyphen, which has a meaning in brackets, is last."""
    codes = sorted(ord(one) for one in characters - {"-"})
    begin = 0
    for index, code in enumerate(codes):
        is_last = index + 1 == len(codes) or codes[index + 1] != code + 1
        if not is_last:
            continue
        run = codes[begin : index + 1]
        begin = index + 1
        yield f"{chr(run[0])}-{chr(run[-1])}" if len(run) > 2 else "".join(map(chr, run))  # noqa: PLR2004 - a to b
    if "-" in characters:
        yield "-"


def _count(least: int, most: int | None) -> str:
    """Return braces with at most the repetitions that matter in a name."""
    low = min(least, _ENOUGH_REPETITIONS)
    if most is None:
        return f"{{{low},}}"
    high = min(most, _ENOUGH_REPETITIONS)
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"
