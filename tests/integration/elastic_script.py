"""Trains the tests' network elastically, as a script without a main guard: what a user would write."""

import json
import os
import sys

from tests.integration.elastic_nets import digest, momentum, network, training

options = json.loads(sys.argv[1])
#: The script ends itself by SIGKILL after this update, as a machine that fails.
dies_after = options.pop("dies_after", None)
prints_workers = options.pop("prints_workers", False)
model = network()
optimizer = momentum(model)
updates = []
under_way = training(model, optimizer, **options)
for update in under_way:
    updates.append(update)
    print("update", update.number, flush=True)
    if prints_workers:
        print("workers", update.workers, flush=True)
    if update.number == dies_after:
        os.kill(os.getpid(), 9)
# The losses of an earlier start are not here.
print("digest", digest(model, optimizer, []))
