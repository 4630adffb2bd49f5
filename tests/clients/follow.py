# Follows a run with sseclient from PyPI: follow.py URL KEY SUBJECT. Prints one JSON object a line.
import json
import sys
import time

import requests
from sseclient import SSEClient

url, key, subject = sys.argv[1:4]
headers = {"Authorization": f"Bearer {key}", "X-Gateway-Subject": subject}
last_id = None
while True:
    try:
        # It comes again by itself when a stream breaks, and raises when it is not let in at once.
        for event in SSEClient(url, last_id=last_id, headers=headers):
            last_id = event.id or last_id
            sequence = json.loads(event.data).get("sequence") if event.data else None
            print(json.dumps({"event": event.event, "id": event.id, "sequence": sequence}), flush=True)
            if event.event in ("run.succeeded", "run.failed", "run.cancelled", "run.expired"):
                sys.exit(0)
    except requests.exceptions.RequestException as error:
        print(json.dumps({"error": type(error).__name__}), flush=True)
        time.sleep(0.2)
