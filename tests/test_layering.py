"""Imports go strictly down (DESIGN, section 3), pure modules stay pure, and nothing heavy loads early.

The table below is that section's list, extended by the modules that exist; a new module must be given
its place here. Read with ``ast``: nothing is imported to find out.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, run_python

PACKAGE = REPOSITORY / "blisgemm"

# From the top down. A module may import modules of lower rows only; a name that ends with .* is a whole
# folder, whose modules may import each other.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli.*",),
    ("bench.plots", "bench.saved"),
    ("bench.rungs_picture",),
    ("bench.tables", "bench.trial", "bench.rungs"),
    ("bench.merge",),
    ("bench.results", "bench.blocks"),
    ("bench.parts", "bench.rates"),
    ("bench.peak", "bench.operands", "bench.peers.__init__"),
    ("bench.peers.numpy_matmul", "bench.peers.torch_mm", "bench.peers.mkl_cblas", "bench.peers.openblas_cblas"),
    ("bench.peers.cblas", "bench.peers.cython_blis"),
    ("bench.peers.peer", "bench.measure", "bench.exact", "bench.shapes", "bench.environment"),
    ("bench.__init__",),
    ("teach.*",),
    ("ladder.*",),
    ("testing.*",),
    ("cuda.*",),
    ("__init__",),
    ("api",),
    ("lane",),
    ("gufunc",),
    ("driver",),
    ("compiled",),
    ("checks",),
    ("entry",),
    ("loops",),
    ("links",),
    ("pack", "team"),
    ("ukernel.bind", "ukernel.ndarray", "ukernel.assembly"),
    ("ukernel.emit", "ukernel.sweep", "ukernel.packer", "ukernel.reference", "ukernel.dialects"),
    ("ukernel.microtile", "ukernel.operand"),
    ("ukernel.vec",),
    ("tuner.*",),
    ("plan", "operands", "lane_limits"),
    ("ways",),
    ("workspace", "cache", "outcome", "rules", "table", "limits", "tuning.*"),
    ("parallel", "blocking"),
    ("ukernel.catalog",),
    ("ukernel.spec", "ukernel.__init__", "verbose"),
    ("machine.*",),
    ("errors", "_version", "forking"),
)

# What a pure module may take from outside the package: words for types and values, nothing that acts.
PURE = (
    "errors",
    "blocking",
    "machine.facts",
    "machine.isas",
    "machine.known",
    "ukernel.spec",
    "ukernel.catalog",
    "tuning.choices",
    "tuning.apply",
    "_version",
)
HARMLESS = {
    "__future__",
    "dataclasses",
    "typing",
    "collections.abc",
    "math",
    "functools",
    "itertools",
    "enum",
}

# The only modules that may load the compiler when they are imported.
COMPILERS = {
    "checks",
    "compiled",
    "entry",
    "links",
    "loops",
    "pack",
    "team",
    "ukernel.bind",
    "ukernel.ndarray",
    "ukernel.assembly",
    "ukernel.emit",
    "ukernel.operand",
    "ukernel.sweep",
    "ukernel.microtile",
    "ukernel.packer",
    "ukernel.vec",
}

FORBIDDEN_WORDS = ("utils", "helpers", "manager", "misc", "common", "old")


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        found[".".join(path.relative_to(PACKAGE).with_suffix("").parts)] = path
    return found


def level_of(module: str) -> int | None:
    for level, names in enumerate(LEVELS):
        for name in names:
            if module == name or (name.endswith(".*") and module.split(".")[0] == name[:-2]):
                return level
    return None


def imports(module: str, path: Path, top_level_only: bool = False) -> list[tuple[int, str, bool]]:
    """Return (line, imported module, is it of this package); what is for type checkers only doesn't count."""
    tree = ast.parse(path.read_text())
    known = modules()
    found = []

    def resolve(base: list[str], names: list[str]) -> list[str]:
        """Names imported from a package are modules of it, or else things that its __init__ holds."""
        targets = []
        for name in names:
            dotted = ".".join([*base, name])
            package = ".".join([*base, "__init__"])
            targets.append(
                dotted
                if dotted in known
                else f"{dotted}.__init__"
                if f"{dotted}.__init__" in known
                else ".".join(base)
                if ".".join(base) in known
                else package
            )
        return targets

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if top_level_only and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "blisgemm":
                    found.extend((node.lineno, name, True) for name in resolve(parts[1:-1], parts[1:][-1:] or [""]))
                else:
                    found.append((node.lineno, alias.name, False))
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".") if node.module else []
            names = [alias.name for alias in node.names]
            if node.level:
                package = module.split(".")[:-1]
                package = package[: len(package) - (node.level - 1)]
                found.extend((node.lineno, name, True) for name in resolve([*package, *parts], names))
            elif parts[0] == "blisgemm":
                found.extend((node.lineno, name, True) for name in resolve(parts[1:], names))
            else:
                found.append((node.lineno, node.module or "", False))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def test_every_module_has_its_place_in_the_table() -> None:
    missing = [module for module in modules() if level_of(module) is None]
    assert not missing, f"give these a row in LEVELS: {missing}"


def test_no_row_of_the_table_is_stale() -> None:
    planned = {"teach.*", "ladder.*", "cuda.*"}
    here = modules()
    stale = [
        name
        for names in LEVELS
        for name in names
        if name not in planned
        and name not in here
        and not any(m.startswith(f"{name[:-2]}.") for m in here if name.endswith(".*"))
    ]
    assert not stale, f"LEVELS names modules that don't exist: {stale}"


@pytest.mark.parametrize("module", modules())
def test_imports_go_strictly_down(module: str) -> None:
    level = level_of(module)
    assert level is not None
    wrong = []
    for line, target, inside in imports(module, modules()[module]):
        if not inside:
            continue
        to = level_of(target)
        assert to is not None, f"{module}:{line} imports {target}, which LEVELS doesn't know"
        same_folder = to == level and any(
            name.endswith(".*") and module.split(".")[0] == target.split(".")[0] == name[:-2] for name in LEVELS[level]
        )
        if to <= level and not same_folder:
            wrong.append(f"{module}.py:{line} imports {target}, which isn't below it")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_import_nothing_that_acts(module: str) -> None:
    for line, target, inside in imports(module, modules()[module]):
        if inside:
            assert target in PURE, f"{module}.py:{line}: a pure module imports {target}, which isn't pure"
        else:
            assert target in HARMLESS, f"{module}.py:{line}: a pure module imports {target}"


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_open_nothing_and_ask_nobody(module: str) -> None:
    tree = ast.parse(modules()[module].read_text())
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input", "exec", "eval", "__import__"}


def test_the_ways_of_parallel_are_pure_functions() -> None:
    import builtins

    tree = ast.parse(modules()["parallel"].read_text())
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in ("choose_ways", "useful_threads"):
        function = functions[name]
        bound = {a.arg for f in ast.walk(function) if isinstance(f, (ast.FunctionDef, ast.Lambda)) for a in f.args.args}
        bound |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        bound |= {f.name for f in ast.walk(function) if isinstance(f, ast.FunctionDef)}
        read = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        assert not read - bound - constants - set(dir(builtins)), (
            f"{name} reads {read - bound - constants - set(dir(builtins))}"
        )


def test_only_the_compiled_layers_import_the_compiler_at_the_top() -> None:
    found = {
        module
        for module, path in modules().items()
        for _, target, inside in imports(module, path, top_level_only=True)
        if not inside
        and target.split(".")[0] in ("numba", "llvmlite")
        and module.split(".")[0] not in ("cli", "bench", "teach", "ladder", "cuda")
    }
    assert found <= COMPILERS, f"these load the compiler when imported: {sorted(found - COMPILERS)}"
    assert "entry" in found, "the reader of imports sees nothing"


def test_standard_library_numpy_numba_and_llvmlite_are_all_that_the_core_needs() -> None:
    # threadpoolctl is asked only if the program has imported it; the CLI's extras are the CLI's; Python 3.10
    # has tomli in place of tomllib
    optional = {
        "parallel": {"threadpoolctl"},
        "tuning.file": {"tomllib", "tomli"},
        "testing.strategies": {"hypothesis"},
    }
    for module, path in modules().items():
        if module.split(".")[0] in ("cli", "bench", "teach", "cuda"):
            continue
        roots = {target.split(".")[0] for _, target, inside in imports(module, path) if not inside}
        foreign = roots - set(sys.stdlib_module_names) - {"numpy", "numba", "llvmlite"} - optional.get(module, set())
        assert not foreign, f"{module} imports {foreign}"


@pytest.mark.parametrize(
    "module",
    [
        "blisgemm",
        "blisgemm.machine",
        "blisgemm.blocking",
        "blisgemm.plan",
        "blisgemm.ways",
        "blisgemm.operands",
        "blisgemm.ukernel.catalog",
        "blisgemm.cache",
        "blisgemm.parallel",
        "blisgemm.cli",
    ],
)
def test_importing_the_upper_layers_loads_no_compiler(module: str) -> None:
    done = run_python(f"import sys, {module}; print(sorted({{'numba', 'llvmlite'}} & set(sys.modules)))")
    assert done.stdout.strip() == "[]"


def test_importing_the_package_is_quick_and_light() -> None:
    done = run_python(
        """
        import sys, blisgemm
        heavy = {"scipy", "rich", "matplotlib", "sklearn", "joblib", "multiprocessing"}
        print(sorted(heavy & set(sys.modules)))
        """
    )
    assert done.stdout.strip() == "[]"


def test_no_module_is_named_after_nothing() -> None:
    bad = [module for module in modules() if any(part.lower() in FORBIDDEN_WORDS for part in module.split("."))]
    assert not bad


@pytest.mark.parametrize(
    "module",
    [m for m in modules() if m.split(".")[-1] not in ("__init__", "__main__", "_version", "errors", "verbose")],
)
def test_every_module_says_what_it_knows_what_not_and_who_calls_it(module: str) -> None:
    text = " ".join((ast.get_docstring(ast.parse(modules()[module].read_text())) or "").split())
    words = ["Knows:", "Does not know:", "alled by"]
    if module.startswith("cli."):
        words.pop()  # the commands are called by cli/__init__, which says so
    missing = [word for word in words if word.lower() not in text.lower()]
    assert not missing, f"the docstring of {module} doesn't say {missing}: {text[:300]}"
