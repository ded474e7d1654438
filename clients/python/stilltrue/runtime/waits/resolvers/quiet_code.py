"""Code that only prints, logs, counts or sleeps: what a loop may do between two rounds of asking, and nothing else.

Rules:

1. It calls nothing but ``print()``, ``sleep()``, clocks, and methods of loggers, and these only with plain values: numbers,
   texts and the like, an exception that it has just caught, and what is made of these. So no method of the application's
   formats them.
2. ``print()`` writes to a file of Python's own. A logger and its handlers are of Python's own classes, without filters.
"""

from __future__ import annotations

import builtins
import io
import logging
import sys
import time
from collections import ChainMap
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import is_jump, stack_effect
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_library
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.names import ATTRIBUTES, CALLING, VARIABLES, begin_of_statement
from stilltrue.runtime.waits.holders.with_blocks import (
    Expression,
    expression_before,
    instructions_of,
    operand_before,
    value_of,
)

PASSED = frozenset(
    {"COPY", "SWAP", "STORE_FAST", "DELETE_FAST", "POP_EXCEPT", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"}
    | {"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_STRING", "BUILD_TUPLE"}
    | {"BINARY_OP", "COMPARE_OP", "IS_OP", "UNARY_NOT", "UNARY_NEGATIVE"}
)
"""Instructions that run no code of others', if their operands are plain values."""
_LOGGING = frozenset({"debug", "info", "warning", "warn", "error", "critical", "exception", "log"})
_CLOCKS = frozenset({"sleep", "time", "monotonic", "perf_counter"})
_CALLED = _LOGGING | _CLOCKS | {"print"}
_PLAIN = (bool, bytes, complex, datetime, float, int, str, timedelta, type(None))
_FUNCTIONS = (print, time.sleep, time.time, time.monotonic, time.perf_counter)
_FILES = (io.TextIOWrapper, io.StringIO)
_AFTER_MATCH = frozenset({"POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE"})


def may_be_quiet(every: Sequence[Any], call: int) -> bool:
    """Whether the call at an instruction may be one of rule 1, judging by the name."""
    begun = begin_of_statement(every, call)
    loads = (at for at in range(begun, call) if every[at].opname in ATTRIBUTES | VARIABLES and every[at].argval in _CALLED)
    return any(_call_of(every, at) == call for at in loads)


def _call_of(every: Sequence[Any], mention: int) -> int | None:
    """The call of the function or method loaded at an instruction; None if there is none in straight-line code."""
    found = operand_before(every, mention + 1)
    begin = mention if found is None else found[1]
    while begin > 0 and every[begin - 1].opname in ("PUSH_NULL", "CACHE", "NOP"):
        begin -= 1
    height = 0
    for index in range(begin, len(every)):
        one = every[index]
        height += 0 if is_jump(one) else stack_effect(one)
        if is_jump(one) or height < 1:
            return None
        if index > mention and height == 1 and one.opname in CALLING:
            return index
    return None


def is_quiet(frame: FrameType, offsets: Iterable[int], asked: Expression) -> bool:
    """Whether the instructions at these offsets, between calls that ask about ``asked``, are quiet now."""
    code = frame.f_code
    used = _used_by(code, frozenset(offsets), asked)
    if not used:
        return True
    values, others = variables_of(frame), ChainMap(frame.f_globals, vars(builtins))
    return all(_is_harmless(one, value_of(one, values, others), values, others) for one in used)


@cached_by_code
def _used_by(code: CodeType, offsets: frozenset[int], asked: Expression) -> tuple[Expression, ...]:
    """The expressions that these instructions use, but for ``asked`` and caught exceptions."""
    every = instructions_of(code)
    within = [index for index, one in enumerate(every) if one.offset in offsets]
    caught = {str(every[index].argval) for index in within if _is_caught(every, index)}
    found = set[Expression]()
    for index in within:
        if every[index].opname in ATTRIBUTES | VARIABLES and every[index].opname.startswith("LOAD_"):
            after = next((one for one in every[index + 1 :] if one.opname not in ("CACHE", "PUSH_NULL", "NOP")), None)
            if after is None or after.opname not in ATTRIBUTES or after.opname.startswith("STORE_"):
                found.add(expression_before(every, index + 1) or (("name", ""),))
    return tuple(one for one in found if one[: len(asked)] != asked and not (len(one) == 1 and one[0][1] in caught))


def _is_caught(every: Sequence[Any], index: int) -> bool:
    """Whether an instruction sets a variable to the exception that its ``except`` clause has caught."""
    return every[index].opname == "STORE_FAST" and index > 0 and every[index - 1].opname in _AFTER_MATCH


def _is_harmless(expression: Expression, value: Any, values: Any, others: Any) -> bool:
    """Whether the value of an expression is plain, or does nothing but rule 1 when it is called."""
    if type(value) in _PLAIN or (issubclass(type(value), type) and issubclass(value, BaseException)):
        return True
    if value is print:
        return type(sys.stdout) in _FILES
    if any(value is one for one in _FUNCTIONS) or (type(value) is FunctionType and _only_sleeps(value)):
        return True
    how, name = expression[-1]
    owner = value_of(expression[:-1], values, others) if how == "attribute" and name in _LOGGING else None
    return _logs_plainly(owner)


def _only_sleeps(function: FunctionType) -> bool:
    """Whether it is the ``sleep()`` of asyncio, or of a library."""
    return function.__name__ == "sleep" and is_library(function.__code__)


def _logs_plainly(logger: Any) -> bool:
    """Rule 2, for a logger or the module ``logging``, which uses the root logger."""
    if type(logger) is ModuleType:
        if logger is not logging:
            return False
        logger = logging.root
    if type(logger) not in (logging.Logger, logging.RootLogger) or logging.getLogRecordFactory() is not logging.LogRecord:
        return False
    while type(logger) in (logging.Logger, logging.RootLogger):
        if logger.filters or not all(map(_handles_plainly, list(logger.handlers))):
            return False
        logger = logger.parent if logger.propagate else None
    return logger is None and _handles_plainly(logging.lastResort)


def _handles_plainly(handler: Any) -> bool:
    known = compat.module_of(type(handler)) == "logging" and not handler.filters
    stream = attribute_of(handler, "stream") if known else UNKNOWN
    formatter = attribute_of(handler, "formatter") if known else None
    plain = type(stream) in _FILES or type(handler) is logging.NullHandler or type(handler).__name__ == "_StderrHandler"
    return known and plain and (formatter is None or type(formatter) is logging.Formatter)
