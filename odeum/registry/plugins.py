"""Plugins: a file or a module that the user names, or an installed package with an entry point.

Loading a plugin runs its code. So it happens only on request, by `--plugin` or by installing a package;
a run says which plugin it needs, and is refused without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError, notice
from odeum.registry.names import ARCHITECTURES, REGISTRIES, Architecture, Mixed, Registry
from odeum.registry.options import options
from odeum.registry.spelling import spell

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "odeum.plugins"
"""group of the entry points in a package's pyproject.toml"""

_NAMED_PLUGINS: list[str] = []
_PLUGIN_OF_NAME: dict[tuple[str, str], str] = {}
"""(what, name) -> the plugin whose loading added it, directly or by a module that it imports"""


def load_plugin(name: str) -> ModuleType:
    """Import a plugin, given as the path of a Python file or the dotted name of a module."""
    path = Path(name)
    is_file = path.suffix == ".py" or path.is_file() or len(path.parts) > 1
    return _load_file(path) if is_file else _load_module(name)


def load_named(names: Sequence[str]) -> None:
    """Load the plugins that a command names."""
    _NAMED_PLUGINS[:] = [str(Path(name).resolve()) if Path(name).suffix == ".py" else name for name in names]
    for name, place in zip(names, _NAMED_PLUGINS, strict=True):
        before = _registered()
        load_plugin(name)
        _PLUGIN_OF_NAME.update(dict.fromkeys(_registered() - before, place))


def _registered() -> set[tuple[str, str]]:
    return {(registry.what, name) for registry in REGISTRIES for name in registry}


def named_plugins() -> tuple[str, ...]:
    """Returns the plugins of the running command in a form that another process can load."""
    return tuple(_NAMED_PLUGINS)


def load_installed() -> None:
    """Load the plugins of all installed packages; one that fails is left out with a notice."""
    for entry in _entries():
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            notice(f"the plugin '{entry.name}' of {_package(entry)} is left out: {_reason(error, None)}")


def _entries() -> Sequence[EntryPoint]:
    """The entry points of all installed packages; read again when a package was installed or removed."""
    return _read_entries(tuple((os.path.abspath(place), _changed(place)) for place in sys.path))


@lru_cache(maxsize=1)
def _read_entries(places: tuple[tuple[str, int], ...]) -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points  # imports a fifth of what --help needs

    return tuple(entry_points(group=GROUP))


def _changed(place: str) -> int:
    try:
        return os.stat(place or os.curdir).st_mtime_ns
    except OSError:  # a place that is not there holds no package
        return 0


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name}" if entry.dist is not None else entry.value


def _load_module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise OdeumError(f"the plugin '{name}' cannot be loaded: {_reason(error, None)}") from error
        hint = f"did you mean {name}.py?" if Path(f"{name}.py").is_file() else "a plugin is a file such as my_ideas.py"
        raise OdeumError(f"there is no module '{name}'; {hint}") from None
    except (Exception, SystemExit) as error:
        raise OdeumError(f"the plugin '{name}' cannot be loaded: {_reason(error, None)}") from error


def _load_file(path: Path) -> ModuleType:
    try:
        if os.path.lexists(path) and not path.is_file():  # a folder, or what has no end
            raise OdeumError(f"cannot read the plugin '{path}': not a regular file")
        source, home = path.read_bytes(), path.resolve()
    except FileNotFoundError:
        raise OdeumError(f"there is no plugin '{path}'") from None
    except OSError as error:
        raise OdeumError(f"cannot read the plugin '{path}': {error.strerror}") from None
    for module in list(sys.modules.values()):
        if (
            (file := getattr(module, "__file__", None))
            and Path(file).name == home.name
            and Path(file).resolve() == home
        ):
            return module
    name = _free_name(home)
    spec = importlib.util.spec_from_file_location(name, home)
    if spec is None:
        raise OdeumError(f"the plugin '{path}' must be a Python file, such as my_ideas.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(home.parent) not in sys.path:
        sys.path.append(str(home.parent))  # it may import its neighbours, but nothing of ours is hidden by them
    try:
        # Compiled from the bytes that are hashed, and not from a cache beside them.
        exec(compile(source, str(home), "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise OdeumError(f"the plugin '{path}' fails{_reason(error, home)}") from error
    module.__dict__["__odeum_sha256__"] = hashlib.sha256(source).hexdigest()
    return module


def _free_name(path: Path) -> str:
    """Returns the file's stem, so that `import my_ideas` works, or another name if a module has it already."""
    name = path.stem
    try:
        taken = name in sys.modules or not name.isidentifier() or importlib.util.find_spec(name)
    except (ImportError, ValueError):
        taken = True
    if taken and getattr(taken, "origin", None) != str(path):
        return f"plugin_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}_{name}"
    return name


def _reason(error: BaseException, home: Path | None) -> str:
    """Describes the error, with the line in the plugin's file."""
    if isinstance(error, SyntaxError):
        where = f" at line {error.lineno}" if home else f"{error.filename}, line {error.lineno}"
        return f"{where}: {error.msg}"
    what = str(error) if isinstance(error, OdeumError) else f"{type(error).__name__}: {error}"
    what = " ".join(what.split())
    if home is None:
        return what
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(home)]
    return f" at line {lines[-1]}: {what}" if lines else f": {what}"


def fault(error: BaseException) -> str | None:
    """Returns a message for an error raised by the code of a plugin file, else None."""
    files = {m.__file__ for m in list(sys.modules.values()) if "__odeum_sha256__" in getattr(m, "__dict__", {})}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if not frames:
        return None
    where, what = frames[-1], f"{type(error).__name__}: {error}"
    return f"the plugin '{where.filename}' fails at line {where.lineno}: {what} (--debug shows how it came to that)"


# ------------------------------------------------------------------------------------- what a run needs


def origin(module: str) -> dict[str, str] | None:
    """Returns the package or file of a module that registers names; None for built-in names."""
    top = module.partition(".")[0]
    if top == "odeum":
        return None
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    file = getattr(sys.modules.get(module), "__file__", None)
    known = getattr(sys.modules.get(module), "__odeum_sha256__", None)
    if known is None and (package := next(iter(packages_distributions().get(top, ())), None)) is not None:
        try:
            return {"package": package, "version": version(package)}
        except PackageNotFoundError:
            pass
    if file is None:
        return {"module": module}
    return {"file": Path(file).name, "sha256": known or hashlib.sha256(Path(file).read_bytes()).hexdigest()}


def requirement(registry: Registry[Any], name: str) -> list[dict[str, str]]:
    """Returns the plugin of a registered name as a run records it; empty for built-in names."""
    plugin = origin(registry.entries[name].module)
    return [] if plugin is None else [{"what": registry.what, "name": name, **plugin}]


def requirements(architecture: Architecture) -> list[dict[str, str]]:
    """Returns the plugins of an architecture and of the names in its options."""
    if isinstance(architecture, Mixed):
        needs = [need for part, _ in architecture.parts for need in requirements(part)]
        return [need for place, need in enumerate(needs) if need not in needs[:place]]
    out = requirement(ARCHITECTURES, spell(architecture).partition(":")[0])
    for option in options(type(architecture)).values():
        if isinstance(option.names, Registry):
            out += requirement(option.names, getattr(architecture, option.name))
    return out


def unavailable_elsewhere(architectures: Iterable[Architecture], kind: tuple[Registry[Any], str]) -> list[str]:
    """Returns the required names that another process could not load: registered by this program, not by a plugin."""
    needs = [need for architecture in architectures for need in requirements(architecture)] + requirement(*kind)
    return list(dict.fromkeys(f"the {need['what']} '{need['name']}'" for need in needs if not _comes_from_plugin(need)))


def _comes_from_plugin(need: dict[str, str]) -> bool:
    registry = next(registry for registry in REGISTRIES if registry.what == need["what"])
    module = registry.entries[need["name"]].module
    file = getattr(sys.modules.get(module), "__file__", None)
    installed = {entry.module.partition(".")[0] for entry in _entries()}
    places = {module, str(Path(file).resolve()) if file else module, _PLUGIN_OF_NAME.get((need["what"], need["name"]))}
    return module.partition(".")[0] in installed or not places.isdisjoint(_NAMED_PLUGINS)


def check_requirements(record: dict[str, Any]) -> None:
    """Raises `OdeumError` if a plugin of a run is missing; a notice if it has changed."""
    known = {registry.what: registry for registry in REGISTRIES}
    for need in record.get("plugins", []):
        what, name = need["what"], need["name"]
        registry = known.get(what)
        if registry is None or name not in registry:
            raise OdeumError(f"this run needs the {what} '{name}' of {_remedy(need)}")
        now = origin(registry.entries[name].module) or {}
        if changed := [key for key in ("sha256", "version") if need.get(key) != now.get(key)]:
            was = f"{need.get(changed[0], 'another one')}"[:12]
            notice(
                f"the {what} '{name}' may not be what this run was made with: "
                f"{_plugin(need)} is not the same ({changed[0]} was {was})"
            )


def _plugin(need: dict[str, str]) -> str:
    if "package" in need:
        return f"the package {need['package']}"
    return f"plugin {need['file']}" if "file" in need else f"the module {need.get('module')}"


def _remedy(need: dict[str, str]) -> str:
    if "package" in need:
        return f"{_plugin(need)}; install {need['package']}=={need.get('version')}"
    if "file" in need:
        return f"{_plugin(need)}; add --plugin {need['file']} (in Python: import it first)"
    return f"{_plugin(need)}; run that first"
