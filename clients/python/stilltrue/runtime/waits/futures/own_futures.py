"""Whether code completes only futures that it has made itself, as in a method that computes what is not yet being computed.

Rules:

1. Code completes or cancels only what one of its local variables refers to, and on every path there the variable was last set
   to a new future (``Future()``, ``loop.create_future()``), or it is ``None`` or not set, which completes nothing. Paths are
   told apart by what is known of other variables: whether they are true, and whether the variable was ``None``.
2. It awaits no future of others: a task that is cancelled cancels what it awaits, unless ``asyncio.shield()`` prevents that.
   It awaits such variables, and the results of calls: not of a function without ``async``, which may return any future, nor
   what a collection gives out (``get``, ``pop``).
3. Code of the program's own that calls something by a computed name may complete anything.
4. Likewise for events, which code sets (``Event().set()``): rule 2 does not concern these. The builtin ``set`` is none, and the
   standard library and gRPC set only events of their own.
5. Likewise for what code closes: a file or connection that it has opened itself (``open(path)``,
   ``socket.create_connection(address)``). A class may return the same object each time, so its objects do not count.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from stilltrue.runtime.bytecode.instructions import exception_entries_of, following, is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.names import ATTRIBUTES, CALLING, VARIABLES, words_in
from stilltrue.runtime.waits.ending_operations import SETTING
from stilltrue.runtime.waits.futures.completions import call_of
from stilltrue.runtime.waits.holders.gates.own_shares import COMPUTING
from stilltrue.runtime.waits.holders.with_blocks import SHUFFLES, Expression, expression_before, instructions_of, skip_back
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

ENDING = frozenset({"cancel", "throw", "set_result", "set_exception", "reschedule"})
_AWAITING = frozenset({"wait_for", "gather", "wait", "as_completed", "ensure_future", "wrap_future"})
_MAKING = frozenset({"Future", "create_future"})
_MAKING_EVENTS = frozenset({"Event"})
_OPENING = frozenset(
    {"create_connection", "cursor", "fdopen", "insecure_channel", "open", "secure_channel", "socket", "urlopen"}
)
_EVENT_CLASSES = frozenset((("name", module), ("attribute", "Event")) for module in ("asyncio", "threading", "anyio", "trio"))
_SAFE = frozenset({"LOAD_CONST", "IS_OP", "COPY", "SWAP", "NOP", "CACHE", "RESUME", "PRECALL", "PUSH_NULL", "POP_TOP"})
_SAFELY = ("POP_JUMP", "STORE_FAST", "LOAD_FAST")
"""Instructions that do not raise: what they test is known to be true, false or ``None``, or the test does not count."""
_GIVING = frozenset({"get", "pop", "popitem", "popleft", "setdefault"})
_RESULTS = CALLING | {"BEFORE_ASYNC_WITH", "GET_ANEXT", "WITH_EXCEPT_START", "LOAD_SPECIAL"}
"""Instructions whose result is awaited."""
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_STATES_MAX = 5_000
_OWN, _NONE, _OTHER, _ANY = "own", "None", "other", "any"
_State = tuple[str, frozenset[tuple[str, bool]]]
"""What the variable refers to, and the other variables that are known to be true or false."""


def completes_only_own(codes: Sequence[CodeType]) -> bool:
    """Whether code that may run all of ``codes`` completes and cancels only futures that it has made itself."""
    every = {one: None for code in codes for one in codes_within(code)}
    plain = {name for one in every if not one.co_flags & inspect.CO_COROUTINE for name in (one.co_name, f"self.{one.co_name}")}
    return all(_keeps_rules(one) and (plain | _GIVING).isdisjoint(_called_and_awaited(one)) for one in every)


def sets_only_own_events(codes: Sequence[CodeType]) -> bool:
    """Whether code that may run all of ``codes`` sets only events that it has made itself (rule 4)."""
    every = {one: None for code in codes for one in codes_within(code)}
    return all(map(_sets_only_own, every))


@cached_by_code
def _sets_only_own(code: CodeType) -> bool:
    if not is_application(code):
        return True
    words = words_in(code)
    if is_own_code(code) and not COMPUTING.isdisjoint(words):
        return False
    return SETTING.isdisjoint(words | {one for one in code.co_consts if type(one) is str}) or _ends_only(code, SETTING)


@cached_by_code
def _keeps_rules(code: CodeType) -> bool:
    """Whether a code object keeps the rules, if what it calls and awaits does."""
    words = words_in(code)
    if is_own_code(code) and not COMPUTING.isdisjoint(words):
        return False
    every = instructions_of(code)
    awaited = [index for index, one in enumerate(every) if one.opname == "GET_AWAITABLE"]
    if awaited and not _AWAITING.isdisjoint(words):
        return False
    given = (index for index in awaited if _before(every, index).opname not in _RESULTS)
    return all(_refers_to_own(code, every, index) for index in given) and ends_only_own(code)


@cached_by_code
def ends_only_own(code: CodeType) -> bool:
    """Rule 1 for a code object, without the functions within it."""
    return _ends_only(code, ENDING)


@cached_by_code
def closes_only_own(code: CodeType, closing: frozenset[str]) -> bool:
    """Rule 5 for a code object, without the functions within it; ``closing``: the names of operations that close."""
    return _ends_only(code, closing)


@cached_by_code
def _ends_only(code: CodeType, ending: frozenset[str]) -> bool:
    """As :func:`ends_only_own`, for the operations with these names."""
    if any(type(one) is str and one in ending for one in code.co_consts):
        return False
    every = instructions_of(code)
    making = _MAKING if ending is ENDING else _MAKING_EVENTS if ending is SETTING else _OPENING
    mentions = [index for index, one in enumerate(every) if _mentions(one, ending)]
    return all(every[index].opname in ATTRIBUTES and _refers_to_own(code, every, index, making) for index in mentions)


@cached_by_code
def _called_and_awaited(code: CodeType) -> frozenset[str]:
    """The names of the functions whose results a code object awaits, those of its object's methods with ``self.`` before.

    Those in ``_GIVING`` if one is not understood.
    """
    every = instructions_of(code)
    calls = {skip_back(every, index - 1) for index, one in enumerate(every) if one.opname == "GET_AWAITABLE"}
    calls = {call for call in calls if every[call].opname in CALLING and not _leaves_block(every, call)}
    loaded = [index for index, one in enumerate(every) if calls and one.opname in ATTRIBUTES | VARIABLES]
    made = {call: index for index in loaded if (call := call_of(every, index)) in calls}
    own = (("name", code.co_varnames[0]),) if code.co_argcount else ()
    return frozenset(_name_of(every, index, own) for index in made.values()) if len(made) == len(calls) else _GIVING


def _name_of(every: Sequence[Any], index: int, own: Expression) -> str:
    """The name of the function or method whose loading begins at an instruction; ``own``: the object of the code itself."""
    is_method = every[index].opname in ATTRIBUTES
    while not is_method and every[index + 1].opname in ATTRIBUTES:
        index += 1
    return f"{'self.' if is_method and expression_before(every, index) == own else ''}{every[index].argval}"


def _leaves_block(every: Sequence[Any], call: int) -> bool:
    """Whether a call is that of a block's exit: with ``None`` three times."""
    given = [one for one in every[max(0, call - 8) : call] if one.opname not in SHUFFLES]
    return all(one.opname == "LOAD_CONST" and one.argval is None for one in given[-3:])


def _before(every: Sequence[Any], index: int) -> Any:
    return every[skip_back(every, index - 1)]


def _mentions(one: Any, ending: frozenset[str]) -> bool:
    names = one.argval if type(one.argval) is tuple else (one.argval,)
    if ending is SETTING and one.opname in _GLOBALS:
        return False  # the builtin, or a function that is among the codes, too
    return any(type(name) is str and name in ending for name in names)


def _refers_to_own(code: CodeType, every: Sequence[Any], index: int, making: frozenset[str] = _MAKING) -> bool:
    """Rule 1, for the expression before an instruction."""
    expression = expression_before(every, index)
    if len(expression) != 1 or expression[0][0] != "name" or expression[0][1] not in code.co_varnames:
        return False
    states = _states_of(code, expression[0][1], making)
    return states is not None and all(kind in (_OWN, _NONE) for kind, _ in states.get(index, ()))


@cached_by_code
def _states_of(code: CodeType, name: str, making: frozenset[str]) -> Mapping[int, set[_State]] | None:
    """The states before each instruction that can be reached; None: too many."""
    every = instructions_of(code)
    index_of = {one.offset: index for index, one in enumerate(every)}
    entries = exception_entries_of(code)
    begin: _State = (_ANY if name in _parameters_of(code) else _NONE, frozenset())
    states: dict[int, set[_State]] = {0: {begin}}
    todo = [(0, begin)]
    count = 0
    while todo:
        index, state = todo.pop()
        count += 1
        if count > _STATES_MAX:
            return None
        after = list(_after(every, index, state, name, making))
        ways = [(way, one) for way in following(every, index, index_of) for one in after]
        ways = [(way, one) for way, before in ways if (one := _at_jump(every, index, way, before, name)) is not None]
        fails = every[index].opname not in _SAFE and not every[index].opname.startswith(_SAFELY)
        caught = [index_of[entry.target] for entry in entries if fails and entry.start <= every[index].offset < entry.end]
        ways += [(way, one) for way in caught for one in (state, *after)]
        for way, one in ways:
            if one not in states.setdefault(way, set()):
                states[way].add(one)
                todo.append((way, one))
    return states


def _parameters_of(code: CodeType) -> tuple[str, ...]:
    several = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + several]


def _after(every: Sequence[Any], index: int, state: _State, name: str, making: frozenset[str]) -> Iterator[_State]:
    """The states after an instruction."""
    one, (kind, flags) = every[index], state
    stored = _stored_by(one)
    if not stored:
        yield state
        return
    flags = frozenset(flag for flag in flags if flag[0] not in stored)
    first = every[index - 1] if index and not one.is_jump_target else None
    if name in stored:
        is_none = stored[0] == name and first is not None and first.opname == "LOAD_CONST" and first.argval is None
        kind = _OWN if stored[0] == name and _makes_one(every, index, making) else _NONE if is_none else _ANY
    if first is None or stored[0] == name:
        yield kind, flags
    elif first.opname == "LOAD_CONST" and type(first.argval) is bool:
        yield kind, flags | {(stored[0], first.argval)}
    elif first.opname == "IS_OP" and _tested(every, index - 1) == name:
        for is_none, known in ((True, _NONE), (False, kind if kind == _OWN else _OTHER)):
            if kind in (known, _ANY):
                yield known, flags | {(stored[0], is_none != bool(first.arg))}
    else:
        yield kind, flags


def _at_jump(every: Sequence[Any], index: int, way: int, state: _State, name: str) -> _State | None:
    """The state if a jump goes this way; None: it cannot."""
    one, (kind, flags) = every[index], state
    if not is_jump(one) or not one.opname.startswith("POP_JUMP") or way == index + 1 == _target(every, one):
        return state
    jumps, loaded = way != index + 1, index - 1
    while loaded > 0 and every[loaded].opname in ("TO_BOOL", "CACHE", "NOP", "EXTENDED_ARG"):
        loaded -= 1
    if one.opname.endswith("_NONE"):
        tested, is_none = _loaded_by(every[loaded]), one.opname.endswith("NOT_NONE") != jumps
    elif every[loaded].opname == "IS_OP":
        is_true = one.opname.endswith("IF_TRUE") == jumps
        tested, is_none = _tested(every, loaded), is_true != bool(every[loaded].arg)
    else:
        flag, is_true = _loaded_by(every[loaded]), one.opname.endswith("IF_TRUE") == jumps
        return None if flag and (flag, not is_true) in flags else (kind, flags | {(flag, is_true)} if flag else flags)
    if tested != name:
        return state
    if kind == _ANY:
        return (_NONE if is_none else _OTHER), flags
    return state if (kind == _NONE) == is_none else None


def _target(every: Sequence[Any], one: Any) -> int:
    return next((index for index, other in enumerate(every) if other.offset == one.argval), -1)


def _tested(every: Sequence[Any], index: int) -> str:
    """The variable that ``is None`` tests at an instruction; empty: something else."""
    last = every[index - 1] if index > 1 else None
    return _loaded_by(every[index - 2]) if last is not None and last.opname == "LOAD_CONST" and last.argval is None else ""


def _loaded_by(one: Any) -> str:
    """The local variable whose value an instruction leaves on top of the stack; empty: something else."""
    if one.opname == "STORE_FAST_LOAD_FAST" or one.opname.startswith("LOAD_FAST_LOAD_FAST"):
        return str(one.argval[1])
    return str(one.argval) if one.opname.startswith("LOAD_FAST") else ""


def _stored_by(one: Any) -> tuple[str, ...]:
    """The local variables that an instruction sets, in order."""
    if one.opname == "STORE_FAST_LOAD_FAST":
        return (str(one.argval[0]),)
    if one.opname in ("STORE_FAST", "DELETE_FAST"):
        return (str(one.argval),)
    return tuple(map(str, one.argval)) if one.opname == "STORE_FAST_STORE_FAST" else ()


def _makes_one(every: Sequence[Any], store: int, making: frozenset[str]) -> bool:
    """Whether a new future or event is stored at an instruction, and perhaps elsewhere as well (``a[b] = c = Future()``)."""
    if every[store].is_jump_target:
        return False
    index = skip_back(every, store - 1)
    if every[index].opname in ("STORE_SUBSCR", "STORE_ATTR"):
        while index > 0 and (every[index].opname != "COPY" or every[index].arg != 1):
            index -= 1
            one = every[index]
            if one.is_jump_target or not one.opname.startswith(("COPY", "LOAD_", "CACHE")):
                return False
        index = skip_back(every, index)
    return _opens(every, index) if making is _OPENING else _is_made_at(every, index, making)


def _is_made_at(every: Sequence[Any], index: int, making: frozenset[str]) -> bool:
    """Whether a call makes a future or an event, by its name."""
    call = every[index]
    if call.opname != "CALL" or call.arg or call.is_jump_target:
        return False
    made = every[skip_back(every, index - 1)]
    if made.opname in ATTRIBUTES and making is _MAKING_EVENTS:  # a factory's may be a shared one
        return expression_before(every, index) in _EVENT_CLASSES
    if made.opname in VARIABLES | ATTRIBUTES:
        return made.argval in making
    expression = expression_before(every, index)  # ``Future[int]()``
    return expression[-1:] == (("item", None),) and expression[0][1] in making


def _opens(every: Sequence[Any], call: int) -> bool:
    """Whether a call opens a file or connection, by its name (rule 5)."""
    if every[call].opname not in CALLING or every[call].is_jump_target:
        return False
    loaded = (index for index in range(call - 1, -1, -1) if every[index].opname in ATTRIBUTES | _GLOBALS)
    called = next((every[index] for index in loaded if call_of(every, index) == call), None)
    if called is None or type(called.argval) is not str:
        return False
    is_method = called.opname in ATTRIBUTES
    return called.argval in _OPENING and not (is_method and called.argval == "open")
