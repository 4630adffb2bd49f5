# Verifies a callback as a business would, with Standard Webhooks' library from PyPI, with the secret in SECRET and
# {"headers": …, "body": "…"} on the standard input. Prints the event's type; an event that is not genuine is an error.
import json
import os
import sys

from standardwebhooks import Webhook

got = json.load(sys.stdin)
print(Webhook(os.environ["SECRET"]).verify(got["body"], got["headers"])["type"], end="")
