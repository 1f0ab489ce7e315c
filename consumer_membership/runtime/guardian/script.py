"""Starts the guardian without its package: `python -I -S script.py PARENT_PID [PIDFD]`.

Importing the package would load librdkafka and everything that a consumer needs, which is too large for the guardian.
So the package is registered in `sys.modules` as a bare name with a path, and its modules are found below it; `config`
is registered in the same way, because the guardian needs one module of it (`config.settings`) and not its `__init__`.
"""

import sys
import types
from os.path import abspath, dirname

if __name__ == "__main__":
    # Without pathlib, which takes 10 ms to import.
    _root = dirname(dirname(dirname(abspath(__file__))))
    for _name, _path in (("consumer_membership", _root), ("consumer_membership.config", f"{_root}/config")):
        _package = types.ModuleType(_name)
        _package.__path__ = [_path]
        sys.modules[_name] = _package

    from consumer_membership.runtime.guardian.process import run

    _pid, *_pidfd = map(int, sys.argv[1:])
    sys.exit(run(_pid, _pidfd[0] if _pidfd else None))
