# Signs an event as Standard Webhooks' library from PyPI does, with the secret in SECRET and the body on the standard input.
# Prints the headers as one JSON object.
import datetime
import json
import os
import sys

from standardwebhooks import Webhook

body = sys.stdin.read()
identifier, now = "msg_pypi", datetime.datetime.now(tz=datetime.timezone.utc)
print(json.dumps({
    "webhook-id": identifier,
    "webhook-timestamp": str(int(now.timestamp())),
    "webhook-signature": Webhook(os.environ["SECRET"]).sign(identifier, now, body),
}))
