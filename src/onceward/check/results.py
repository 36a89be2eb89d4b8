"""Annotations and results of steps and workflows that no store can keep, as `core.codec` would find."""

from __future__ import annotations

import ast
import builtins

from onceward.check.resolve import Resolver, unquoted
from onceward.check.scopes import Scope, own_nodes
from onceward.check.values import UNKNOWN, Class, Function, Named, Object

_DEPTH_MAX = 12

_NO_DATA = {
    "complex",
    "range",
    "slice",
    "type",
    "property",
    "re.Pattern",
    "re.Match",
    "fractions.Fraction",
    "os.PathLike",
    "zoneinfo.ZoneInfo",
    "sqlite3.Connection",
    "sqlite3.Cursor",
    "sqlite3.Row",
    "http.client.HTTPResponse",
    "httpx.Response",
    "httpx2.Response",
    "httpx.Client",
    "httpx.AsyncClient",
    "requests.Response",
    "requests.Session",
    "aiohttp.ClientResponse",
    "aiohttp.ClientSession",
    "aiohttp.StreamReader",
    "numpy.ndarray",
    "pandas.DataFrame",
    "pandas.Series",
    "subprocess.CompletedProcess",
    "subprocess.Popen",
    "logging.Logger",
    "socket.socket",
    "types.ModuleType",
    "types.FunctionType",
    "types.TracebackType",
    "types.SimpleNamespace",
    "argparse.Namespace",
}
_NO_DATA_IN = ("pathlib.", "io.", "threading.", "asyncio.", "concurrent.futures.", "ipaddress.", "queue.", "sqlalchemy.engine.", "sqlalchemy.orm.Session", "psycopg.", "asyncpg.")  # fmt: skip
_NO_DATA_NAMES = {
    "Callable",
    "Iterator",
    "Generator",
    "AsyncIterator",
    "AsyncGenerator",
    "AsyncIterable",
    "IO",
    "TextIO",
    "BinaryIO",
    "Pattern",
    "Match",
    "ContextManager",
    "AsyncContextManager",
    "AbstractContextManager",
}
_TRANSPARENT = {"Optional", "Union", "list", "List", "set", "Set", "frozenset", "FrozenSet", "tuple", "Tuple"}
_TRANSPARENT |= {"Sequence", "Collection", "Final", "Required", "NotRequired", "ReadOnly", "AbstractSet"}
_DICTS = {"dict", "Dict", "Mapping", "MutableMapping"}
_EMPTY_BASES = {"object", "abc.ABC", "typing.Generic"}
_NO_JSON = {
    "set",
    "frozenset",
    "tuple",
    "bytes",
    "complex",
    "range",
    "zip",
    "map",
    "filter",
    "reversed",
    "bytearray",
}
_NO_JSON |= {
    "datetime.datetime",
    "datetime.date",
    "datetime.timedelta",
    "datetime.datetime.now",
    "datetime.date.today",
}
_NO_JSON |= {"datetime.datetime.utcnow", "datetime.datetime.fromtimestamp", "datetime.datetime.fromisoformat"}
_NO_JSON |= {"decimal.Decimal", "uuid.UUID", "uuid.uuid4", "uuid.uuid1", "uuid.uuid7", "pathlib.Path"}


class Storable:
    """Says of annotations and results whether a store could keep them.

    Args:
        resolver: what names stand for.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def objection(self, annotation: ast.expr, scope: Scope, depth: int = 0) -> str | None:
        """Give why no value of an annotation could be stored, or None."""
        node = unquoted(annotation)
        if depth > _DEPTH_MAX:
            return None
        if isinstance(node, ast.BinOp):
            parts = (node.left, node.right)
            twins = self._twins([*_alternatives(node)], scope) if depth == 0 else None
            return twins or next(filter(None, (self.objection(one, scope, depth + 1) for one in parts)), None)
        if isinstance(node, ast.Subscript):
            return self._of_generic(node, scope, depth)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._of_name(node, scope, depth)
        return None

    def _of_generic(self, node: ast.Subscript, scope: Scope, depth: int) -> str | None:
        outer = self._resolver.value(node.value, scope)
        name = outer.path.rpartition(".")[2] if isinstance(outer, Named) else ""
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in _NO_DATA_NAMES:
            return f"{name} is no data"
        if name in _DICTS and len(inner) == 2:
            return self._no_key(inner[0], scope) or self.objection(inner[1], scope, depth + 1)
        if name == "Annotated":
            return self.objection(inner[0], scope, depth + 1)
        if name in {"Awaitable", "Coroutine"}:
            return self.objection(inner[-1], scope, depth + 1)
        if name in _TRANSPARENT:
            return next(filter(None, (self.objection(one, scope, depth + 1) for one in inner)), None)
        return self._of_name(node.value, scope, depth) if outer is not UNKNOWN else None

    def _no_key(self, key: ast.expr, scope: Scope) -> str | None:
        node = unquoted(key)
        outer = node.value if isinstance(node, ast.Subscript) else node
        found = self._resolver.value(outer, scope)
        name = found.path if isinstance(found, Named) else ""
        if name in {"tuple", "list", "bool", "dict", "set", "frozenset", "typing.Tuple", "typing.FrozenSet"}:
            return f"keys of dicts must have a text form, and {ast.unparse(key)} has none"
        return None

    def _of_name(self, node: ast.expr, scope: Scope, depth: int) -> str | None:
        found = self._resolver.value(node, scope)
        if isinstance(found, Class):
            return self._of_class(found, depth)
        if not isinstance(found, Named):
            return None
        path = found.path
        if path in _NO_DATA or path.startswith(_NO_DATA_IN) or path.rpartition(".")[2] in _NO_DATA_NAMES:
            return f"{path} has no JSON form"
        known = getattr(builtins, path, None)
        if isinstance(known, type) and issubclass(known, BaseException):
            return f"{path} is an exception"
        return None

    def _of_class(self, cls: Class, depth: int) -> str | None:
        name = cls.node.name
        if cls.node.decorator_list:
            decorators = [self._resolver.value(_undressed(one), cls.scope) for one in cls.node.decorator_list]
            is_data = any(
                isinstance(one, Named) and one.path == "dataclasses.dataclass" for one in decorators
            )
            return self._of_fields(cls, depth) if is_data else None
        bases = [self._resolver.value(_undressed(base), cls.scope) for base in cls.node.bases]
        if cls.node.keywords or any(base is UNKNOWN for base in bases):
            return None
        named = [base.path for base in bases if isinstance(base, Named)]
        for base in bases:
            if isinstance(base, Class):
                return self._of_class(base, depth + 1) if depth < _DEPTH_MAX else None
        exceptions = [one for one in named if isinstance(getattr(builtins, one, None), type)]
        exceptions = [one for one in exceptions if issubclass(getattr(builtins, one), BaseException)]
        if exceptions:
            return f"{name} is an exception"
        if all(one in _EMPTY_BASES for one in named):
            return f"{name} is a class without a JSON form"
        is_data = any(one.rpartition(".")[2] in {"Struct", "TypedDict", "NamedTuple"} for one in named)
        return self._of_fields(cls, depth) if is_data else None

    def _of_fields(self, cls: Class, depth: int) -> str | None:
        inner = Scope(cls.module, cls.node, cls.scope)
        for field in cls.node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                if "ClassVar" in ast.unparse(field.annotation):
                    continue
                reason = self.objection(field.annotation, inner, depth + 1)
                if reason is not None:
                    return f"{cls.node.name}.{field.target.id}: {reason}"
        return None

    def _twins(self, parts: list[ast.expr], scope: Scope) -> str | None:
        """Give the objection to a union of two dataclasses, which look alike in JSON."""
        classes = [
            found.node.name
            for part in parts
            if isinstance(found := self._resolver.value(part, scope), Class)
            and any(
                isinstance(one := self._resolver.value(_undressed(decorator), found.scope), Named)
                and one.path == "dataclasses.dataclass"
                for decorator in found.node.decorator_list
            )
        ]
        return f"JSON cannot tell {classes[0]} and {classes[1]} apart" if len(classes) > 1 else None

    # --- results without an annotation ----------------------------------------------------------------

    def refused_result(self, function: Function) -> tuple[ast.expr, str] | None:
        """Give what an unannotated function returns that plain JSON would not give back."""
        node = function.node
        scope = Scope(function.module, node, function.scope)
        if isinstance(node, ast.Lambda):
            returned: list[ast.expr] = [node.body]
        elif node.returns is not None:
            return None
        else:
            returned = [
                one.value for one in own_nodes(node) if isinstance(one, ast.Return) and one.value is not None
            ]
        for value in returned:
            found = self._no_json(value, scope)
            if found is not None:
                return value, found
        return None

    def _no_json(self, node: ast.expr, scope: Scope) -> str | None:
        if isinstance(node, ast.Tuple):
            return "a tuple"
        if isinstance(node, ast.Set | ast.SetComp):
            return "a set"
        if isinstance(node, ast.GeneratorExp):
            return "a generator"
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes | complex):
            return f"{type(node.value).__name__}"
        if isinstance(node, ast.List):
            return next(filter(None, (self._no_json(one, scope) for one in node.elts)), None)
        if isinstance(node, ast.Dict):
            return next(filter(None, (self._no_json(one, scope) for one in node.values)), None)
        if isinstance(node, ast.ListComp):
            return self._no_json(node.elt, scope)
        if isinstance(node, ast.Call):
            target = self._resolver.value(node.func, scope)
            if isinstance(target, Named) and target.path in _NO_JSON:
                return f"what {ast.unparse(node.func)}() gives"
            made = self._resolver.result(node, scope)
            if isinstance(target, Class) and isinstance(made, Object):
                return f"a {target.node.name}"
        return None


def _undressed(node: ast.expr) -> ast.expr:
    """Give what is called or subscripted."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def _alternatives(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [node]
