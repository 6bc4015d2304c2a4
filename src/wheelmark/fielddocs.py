"""What the fields of a dataclass say of themselves: the string literals under them, as schemas and pages quote them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any


def field_docs(kind: type[Any]) -> dict[str, str]:
    """The string literal under each field of a dataclass or member of an enum: name -> text."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    if not isinstance(body, ast.ClassDef):
        return {}
    docs: dict[str, str] = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        match before, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = " ".join(text.split())
            case _:
                continue
    return docs
