"""Calls of what is not among the scanned sources: the builtins and library functions that matter here, and the rest.

What is handed to an unknown function leaves our sight: the environment is then used as a whole, one of its functions
becomes dynamic, and a scanned function is assumed to be called with the arguments that follow it, as
``submit(function, argument)`` and ``Thread(target=function, args=…)`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import calls, sinks, uses
from .frames import Frame, Spot
from .values import UNKNOWN, WILD, Atom, Value, concatenate, distant, join, of, text

if TYPE_CHECKING:
    from .evaluate import Evaluator

COPIES = frozenset(
    {
        "builtins.dict",
        "collections.OrderedDict",
        "collections.ChainMap",
        "collections.UserDict",
        "copy.copy",
        "copy.deepcopy",
        "types.MappingProxyType",
        "collections.defaultdict",
    }
)
SEQUENCES = frozenset(
    {
        "builtins.list",
        "builtins.tuple",
        "builtins.set",
        "builtins.frozenset",
        "builtins.sorted",
        "builtins.reversed",
        "builtins.iter",
        "itertools.chain",
        "collections.deque",
        "itertools.cycle",
    }
)
TEXT = frozenset(
    {"builtins.str", "os.fsencode", "os.fsdecode", "sys.intern", "os.fspath", "builtins.bytes", "enum.auto"}
)
QUIET = frozenset(
    {"builtins.isinstance", "builtins.id", "builtins.type", "builtins.callable", "builtins.hasattr", "builtins.super"}
)
DECORATORS = frozenset({"functools.lru_cache", "functools.cache", "functools.wraps", "functools.update_wrapper"})
CHILD_FUNCTIONS = {
    "os.execve": 2,
    "os.execle": -1,
    "os.execvpe": 2,
    "os.execlpe": -1,
    "os.spawnve": 3,
    "os.spawnvpe": 3,
    "os.spawnle": -1,
    "os.spawnlpe": -1,
    "os.posix_spawn": 2,
    "os.posix_spawnp": 2,
}
ENVVAR_KEYWORDS = ("envvar", "env_var", "auto_envvar_prefix", "default_envvar_prefix")


def call_external(
    ev: Evaluator, frame: Frame, name: str, arguments: list[Value], named: dict[str, Value], spot: Spot
) -> Value:
    """A call of something outside the scanned sources."""
    handler = _HANDLERS.get(name)
    if handler is not None:
        return handler(ev, frame, arguments, named, spot)
    if name in COPIES:
        return _copy(ev, frame, arguments, named, spot)
    if name in SEQUENCES:
        return _sequence(ev, arguments)
    if name in TEXT:
        return concatenate([arguments[0]]) if arguments else text("")
    if name in QUIET:
        return UNKNOWN
    if name in DECORATORS:
        return arguments[0] if arguments else UNKNOWN
    if name.endswith(("patch.dict", "patch.object")):
        return UNKNOWN
    if name in CHILD_FUNCTIONS and arguments:
        position = CHILD_FUNCTIONS[name]
        if position < len(arguments):
            sinks.child_environment(ev, frame, arguments[position], True, spot)
        return UNKNOWN
    if name.startswith(("subprocess.", "asyncio.create_subprocess", "asyncio.subprocess.")) and "env" in named:
        sinks.child_environment(ev, frame, named["env"], True, spot)
        named = {key: value for key, value in named.items() if key != "env"}
    unknown_call(ev, frame, name, arguments, named, spot)
    deps = frozenset(dep for value in (*arguments, *named.values()) for dep in value.deps)
    return Value(UNKNOWN.atoms, distant(deps))


def unknown_call(
    ev: Evaluator, frame: Frame, name: str, arguments: Sequence[Value], named: dict[str, Value], spot: Spot
) -> None:
    """What an unknown function may do with what it is given."""
    short = name.rpartition(".")[2]
    if "env" in named:
        sinks.child_environment(ev, frame, named["env"], False, spot)
    for keyword in ENVVAR_KEYWORDS:
        if keyword in named:
            _envvar(ev, frame, keyword, named[keyword], spot)
    settings = named.get("context_settings")
    for atom in settings.atoms if settings is not None else ():
        if atom[0] == "dict":
            for key, value in atom[1]:
                if key == text("auto_envvar_prefix"):
                    _envvar(ev, frame, "auto_envvar_prefix", value, spot)
    if short in ("setattr", "delattr") and not name.startswith("builtins."):
        return
    for position, value in enumerate([*arguments, *(v for k, v in named.items() if k != "env")]):
        form = f"handed to {short}" if short else "handed on"
        sinks.consumed(ev, frame, value, form, spot)
        following = list(arguments[position + 1 :]) if position < len(arguments) else []
        for atom in value.atoms:
            if atom[0] not in ("fn", "sink", "em", "part"):
                continue
            given = named.get("args")
            tuples = [a for a in given.atoms if a[0] == "seq" and a[2]] if given is not None else []
            if atom[0] == "em" and atom[2] in ("keys", "values", "items", "copy"):
                continue
            if tuples:
                for pack in tuples:
                    calls.call(ev, frame, of(atom), list(pack[1]), {}, spot)
            elif following:
                calls.call(ev, frame, of(atom), following, {}, spot, True)
            else:
                ev.escape(frame, of(atom), spot)


def _envvar(ev: Evaluator, frame: Frame, keyword: str, value: Value, spot: Spot) -> None:
    """Command line libraries name a variable, several, or a prefix."""
    names: list[Value] = []
    for atom in value.atoms:
        if atom[0] == "seq":
            names += atom[1]
        elif atom[0] != "c":
            names.append(Value(frozenset({atom}), value.deps))
    for name in names:
        prefix = keyword.endswith("prefix")
        key = concatenate([name, text("_" + WILD)]) if prefix else name
        sinks.note(ev, frame, key, "read", f"{keyword}=", spot)


def container_method(ev: Evaluator, frame: Frame, atom: Atom, name: str, arguments: list[Value], spot: Spot) -> Value:
    """Methods of dicts and lists whose content is known."""
    for value in arguments:
        sinks.consumed(ev, frame, value, f"handed to {name}", spot)
    if atom[0] == "seq":
        return of(atom) if name == "copy" else UNKNOWN
    if name == "items":
        return of(("seq", tuple(of(("seq", pair, True)) for pair in atom[1]), atom[2]))
    if name == "keys":
        return of(("seq", tuple(key for key, _ in atom[1]), atom[2]))
    if name == "values":
        return of(("seq", tuple(value for _, value in atom[1]), atom[2]))
    if name == "copy":
        return of(atom)
    if name in ("get", "pop", "setdefault") and arguments:
        found = uses.item(ev, atom, arguments[0])
        deps = found.deps | arguments[0].deps
        return join([found, *arguments[1:2]]).with_deps(deps)
    return UNKNOWN


def _copy(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    atoms: set[Atom] = set()
    pairs = tuple((text(key), value) for key, value in named.items())
    complete = True
    for value in arguments:
        for atom in value.atoms:
            if atom[0] == "env":
                if atom[1] != "copy":
                    sinks.bulk(ev, frame, "copy", spot, "read")
                atoms.add(("env", "copy"))
            elif atom[0] == "dict":
                pairs += atom[1]
            elif atom[0] == "seq":
                pairs += tuple((ev.pick(pair, [0]), ev.pick(pair, [1])) for pair in atom[1])
                complete = complete and atom[2]
            elif atom[0] == "inst":
                atoms.add(atom)
            else:
                complete = False
    atoms.add(("dict", pairs, complete))
    return Value(frozenset(atoms))


def _sequence(ev: Evaluator, arguments: list[Value]) -> Value:
    if not arguments:
        return of(("seq", (), True))
    atoms: set[Atom] = set()
    if len(arguments) > 1 and all(any(a[0] == "seq" for a in value.atoms) for value in arguments):
        return of(("seq", tuple(ev.elements(value) for value in arguments), False))
    for atom in arguments[0].atoms:
        if atom[0] == "seq":
            atoms.add(atom)
        elif atom[0] == "dict":
            atoms.add(("seq", tuple(key for key, _ in atom[1]), atom[2]))
        elif atom[0] == "env":
            atoms.add(("env", "view"))
        else:
            atoms.add(("seq", (ev.elements(of(atom)),), False))
    return Value(frozenset(atoms), arguments[0].deps)


def _from_keys(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    """``dict.fromkeys(names, value)``."""
    atoms = arguments[0].atoms if arguments else frozenset()
    content = arguments[1] if len(arguments) > 1 else of(("c", None))
    keys = [key for atom in atoms if atom[0] == "seq" for key in atom[1]]
    complete = bool(atoms) and all(atom[0] == "seq" and atom[2] for atom in atoms)
    return Value(frozenset({("dict", tuple((key, content) for key in keys), complete)}))


def _getattr(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    from .attributes import attribute

    names = (
        [atom[1] for atom in arguments[1].atoms if atom[0] == "s" and WILD not in atom[1]] if len(arguments) > 1 else []
    )
    found = [attribute(ev, frame, arguments[0], name, spot) for name in names]
    return join([*found, *arguments[2:3]]) if found else UNKNOWN


def _import(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    found: list[Value] = []
    for atom in (arguments[0] if arguments else named.get("name", UNKNOWN)).atoms:
        if atom[0] == "s" and WILD not in atom[1]:
            module = ev.module_of(atom[1])
            found.append(of(("mod", module.number)) if module is not None else sinks.external(atom[1]))
    return join(found) if found else UNKNOWN


def _vars(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    if any(atom == ("ext", "os") for value in arguments for atom in value.atoms):
        names = ("environ", "environb", "getenv", "putenv", "unsetenv")
        return of(("dict", tuple((text(name), sinks.external(f"os.{name}")) for name in names), False))
    return UNKNOWN


def _partial(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    if not arguments:
        return UNKNOWN
    if len(arguments) > 1 or named:
        calls.call(ev, frame, arguments[0], arguments[1:], named, spot, True)
    return of(("part", arguments[0], tuple(arguments[1:]), tuple(named.items())))


def _map(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    if len(arguments) < 2:
        return UNKNOWN
    for value in arguments[1:]:
        sinks.consumed(ev, frame, value, "iteration", spot)
    elements = [ev.elements(value) for value in arguments[1:]]
    result = calls.call(ev, frame, arguments[0], elements, {}, spot)
    return of(("seq", (result,), False))


def _filter(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    _map(ev, frame, arguments, named, spot)
    return of(("seq", (ev.elements(arguments[1]),), False)) if len(arguments) > 1 else UNKNOWN


def _enumerate(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    value = arguments[0] if arguments else UNKNOWN
    sinks.consumed(ev, frame, value, "iteration", spot)
    exact = next((a for a in value.atoms if a[0] == "seq" and a[2]), None) if len(value.atoms) == 1 else None
    if exact is not None and len(arguments) == 1:
        return of(("seq", tuple(of(("seq", (of(("c", i)), e), True)) for i, e in enumerate(exact[1])), True))
    return of(("seq", (of(("seq", (UNKNOWN, ev.elements(value)), True)),), False))


def _zip(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    exact = [next(iter(value.atoms)) for value in arguments if len(value.atoms) == 1]
    if len(exact) == len(arguments) and all(atom[0] == "seq" and atom[2] for atom in exact):
        return of(("seq", tuple(of(("seq", row, True)) for row in zip(*(atom[1] for atom in exact))), True))
    return of(("seq", (of(("seq", tuple(ev.elements(value) for value in arguments), True)),), False))


def _range(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    bounds = [
        next(iter(value.atoms))[1] for value in arguments if len(value.atoms) == 1 and next(iter(value.atoms))[0] == "c"
    ]
    known = len(bounds) == len(arguments) and 1 <= len(bounds) <= 3 and all(isinstance(b, int) for b in bounds)
    if known and (len(bounds) < 3 or bounds[2]):
        numbers = range(*bounds)
        if len(numbers) <= 64:
            return of(("seq", tuple(of(("c", number)) for number in numbers), True))
    return of(("seq", (UNKNOWN,), False))


def _next(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    sinks.consumed(ev, frame, arguments[0] if arguments else UNKNOWN, "iteration", spot)
    return join([ev.elements(arguments[0]), *arguments[1:]]) if arguments else UNKNOWN


def _super(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    walk: Frame | None = frame
    while walk is not None and walk.parent is not None and walk.parent.scope["kind"] != "class":
        walk = walk.parent
    if walk is None or walk.parent is None or not walk.scope["params"]:
        return UNKNOWN
    receiver = walk.params.get(walk.scope["params"][0][0], UNKNOWN)
    return of(("super", walk.parent.sid, receiver))


def _eval(ev: Evaluator, frame: Frame, arguments: list[Value], named: dict[str, Value], spot: Spot) -> Value:
    words = ("environ", "getenv", "putenv", "expandvars")
    if any(a[0] == "s" and any(word in a[1] for word in words) for value in arguments[:1] for a in value.atoms):
        ev.note_eval(frame, spot)
    return UNKNOWN


Handler = Callable[["Evaluator", Frame, list[Value], dict[str, Value], Spot], Value]

_HANDLERS: dict[str, Handler] = {
    "builtins.dict.fromkeys": _from_keys,
    "builtins.getattr": _getattr,
    "builtins.__import__": _import,
    "importlib.import_module": _import,
    "builtins.vars": _vars,
    "functools.partial": _partial,
    "functools.partialmethod": _partial,
    "builtins.map": _map,
    "builtins.filter": _filter,
    "builtins.enumerate": _enumerate,
    "builtins.zip": _zip,
    "builtins.range": _range,
    "builtins.next": _next,
    "builtins.super": _super,
    "builtins.eval": _eval,
    "builtins.exec": _eval,
    "builtins.compile": _eval,
}
