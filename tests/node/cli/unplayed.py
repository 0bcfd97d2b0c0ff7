"""A command on a machine that is a recording in real time: what an overlay lets hang hangs, in a process.

`python -m tests.node.cli.unplayed RECORDING OVERLAY check ...`
"""

import sys

from wirewatch.__main__ import main
from wirewatch.cli.check import polling
from wirewatch.cli.hardware import replayed

if __name__ == "__main__":
    recording, overlay, *words = sys.argv[1:]
    vars(polling)["live"] = lambda *_config, **_options: replayed(recording, (overlay,))
    sys.argv = ["wirewatch", *words]
    main()
