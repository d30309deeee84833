"""A client that moves a number by a known amount, and fails where a file says so."""

import json
import os
import time
from pathlib import Path

import numpy as np
import nvflare.client as flare


def main() -> None:
    flare.init()
    site = flare.get_site_name()
    number = int(site.removeprefix("site-"))
    while flare.is_running():
        received = flare.receive()
        plan = json.loads(Path(os.environ["COTERIE_TEST_FAULTS"]).read_text())
        fault = plan.get(site, {}).get(str(received.current_round))
        if fault == "die":
            os._exit(9)
        if fault == "sleep":
            time.sleep(60)
        if fault == "raise":
            raise ValueError("the patient's name is Smith")
        moved = {name: array + np.float32(2.0**-number) for name, array in received.params.items()}
        flare.send(flare.FLModel(params=moved, metrics={"train_loss": 1.0}))


if __name__ == "__main__":
    main()
