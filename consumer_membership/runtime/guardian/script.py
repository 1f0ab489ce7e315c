"""Starts the guardian without its package: `python -I -S script.py PARENT_PID`, the pipe on stdin.

Importing the package would load librdkafka, kio and pydantic, which the guardian neither needs nor has room for. So the
package stands in `sys.modules` as a bare name with a path, and its modules are found below it.
"""

import sys
import types
from pathlib import Path

if __name__ == "__main__":
    _package = types.ModuleType("consumer_membership")
    _package.__path__ = [str(Path(__file__).resolve().parents[2])]
    sys.modules[_package.__name__] = _package

    from consumer_membership.runtime.guardian.process import run

    sys.exit(run(int(sys.argv[1])))
