# OpenAI's own SDK checks and reads a callback: the secret is in SECRET, headers and body come as JSON. Prints the type and the response.
import json
import os
import sys

import openai

told = json.load(sys.stdin)
client = openai.OpenAI(api_key="unused", webhook_secret=os.environ["SECRET"])
event = client.webhooks.unwrap(told["body"], told["headers"])
print(event.type, event.data.id, end="")
