# OpenAI's own SDK calls published services: openai_sdk.py ORIGIN KEY SERVICE TYPED-SERVICE SLOW-SERVICE. Prints what came of it as JSON.
import asyncio
import json
import sys
import time

import openai
from pydantic import BaseModel

origin, key, service, typed, slow = sys.argv[1:6]
options = {
    "base_url": f"{origin}/openai/v1",
    "api_key": key,
    "default_headers": {"X-Gateway-Subject": "customer-1"},
    "timeout": 60,
}
client = openai.OpenAI(**options)
seen = {}


class Invoices(BaseModel):
    ids: list[str]
    count: int


def failure(call):
    try:
        answer = call()
    except openai.APIStatusError as error:
        return [error.status_code, error.code, error.param, type(error).__name__]
    return ["no error", str(answer)]


models = client.models.list().data
seen["models"] = [[model.id, model.name] for model in models]
seen["model"] = client.models.retrieve(service).name

answer = client.responses.create(model=service, input="orders", temperature=0.2, instructions="Be brief.", metadata={"case": "7"})
seen["answer"] = [answer.status, answer.output_text, len(answer.output), answer.instructions, answer.metadata, answer.error]
seen["usage"] = answer.usage.total_tokens >= 0
again = client.responses.retrieve(answer.id)
seen["retrieved"] = [again.output_text == answer.output_text, again.id == answer.id]
items = client.responses.input_items.list(answer.id)
seen["items"] = [item.content[0].text for item in items.data]
by_name = client.responses.create(model=models[0].name, input=[{"role": "user", "content": [{"type": "input_text", "text": "names"}]}])
seen["by name"] = by_name.output_text

raw = client.responses.with_raw_response.create(model=service, input="x", top_p=0.5, extra_headers={"Idempotency-Key": "once"})
twice = client.responses.with_raw_response.create(model=service, input="x", top_p=0.5, extra_headers={"Idempotency-Key": "once"})
seen["headers"] = [raw.headers["deskgate-ignored"], twice.headers["idempotency-replayed"], raw.parse().id == twice.parse().id]


def followed(stream):
    return [event for event in stream]


def said(events):
    texts = {}
    for event in events:
        if event.type == "response.output_text.delta":
            texts[event.output_index] = texts.get(event.output_index, "") + event.delta
    return texts


events = followed(client.responses.create(model=service, input="streamed", stream=True))
seen["stream"] = [events[0].type, events[1].type, events[-1].type, events[-1].response.output_text]
whole, numbers = said(events), [event.sequence_number for event in events]
seen["texts"] = list(whole.values())
seen["growing"] = numbers == sorted(set(numbers))
stream_id = events[-1].response.id
lost = []
for place, event in enumerate(events):
    rest = followed(client.responses.retrieve(stream_id, stream=True, starting_after=event.sequence_number))
    before = said(events[: place + 1])
    for index, text in said(rest).items():
        before[index] = before.get(index, "") + text
    if before != whole or any(later.sequence_number <= event.sequence_number for later in rest):
        lost.append([place, before])
seen["lost"] = lost

with client.responses.stream(model=service, input="helped") as stream:
    for _ in stream:
        pass
    seen["helper"] = stream.get_final_response().output_text


async def asynchronous():
    async with openai.AsyncOpenAI(**options) as other:
        return (await other.responses.create(model=service, input="asynchronous")).output_text


seen["asynchronous"] = asyncio.run(asynchronous())

parsed = client.responses.parse(model=typed, input="How many?", text_format=Invoices)
seen["parsed"] = [parsed.output_parsed.count, parsed.output_parsed.ids]
with client.responses.stream(model=typed, input="How many?", text_format=Invoices) as stream:
    for _ in stream:
        pass
    seen["parsed stream"] = stream.get_final_response().output_parsed.count
seen["parsed chat"] = (
    client.chat.completions.parse(
        model=typed, messages=[{"role": "user", "content": "How many?"}], response_format=Invoices
    )
    .choices[0]
    .message.parsed.count
)

first = client.responses.create(model=service, input="one")
second = client.responses.create(model=service, input="two", previous_response_id=first.id)
seen["continued"] = [second.conversation.id == first.conversation.id, second.previous_response_id == first.id]
seen["moved on"] = failure(lambda: client.responses.create(model=service, input="x", previous_response_id=first.id))
third = client.responses.create(model=service, input="three", conversation=first.conversation.id)
seen["in conversation"] = third.conversation.id == first.conversation.id
alone = client.responses.create(model=service, input="x", store=False)
seen["alone"] = failure(lambda: client.responses.create(model=service, input="x", previous_response_id=alone.id))

began = time.monotonic()
waiting = client.responses.create(model=slow, input="x", background=True)
seen["background"] = [waiting.status, time.monotonic() - began < 5]
while client.responses.retrieve(waiting.id).status != "in_progress":
    time.sleep(0.05)
cancelled = client.responses.cancel(waiting.id)
while cancelled.status == "in_progress":
    time.sleep(0.05)
    cancelled = client.responses.retrieve(waiting.id)
seen["cancelled"] = [cancelled.status, cancelled.error.code]
seen["stream of a cancelled one"] = followed(client.responses.retrieve(waiting.id, stream=True))[-1].type

chat = client.chat.completions.create(model=service, messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "chat"}])
seen["chat"] = [chat.choices[0].message.content, chat.choices[0].finish_reason, chat.usage.total_tokens >= 0]
chunks = list(
    client.chat.completions.create(
        model=service, messages=[{"role": "user", "content": "chat"}], stream=True, stream_options={"include_usage": True}
    )
)
seen["chunks"] = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
seen["chunks end"] = [chunks[-2].choices[0].finish_reason, chunks[-1].usage is not None]

seen["no model"] = failure(lambda: client.responses.create(model="nobody", input="x"))
tools = [{"type": "function", "name": "f", "parameters": {}}]
seen["tools"] = failure(lambda: client.responses.create(model=service, input="x", tools=tools))
seen["no user"] = failure(lambda: client.responses.create(model=service, input=[{"role": "assistant", "content": "x"}]))
seen["no key"] = failure(lambda: client.with_options(api_key="dgk_no").models.list())
seen["unknown"] = failure(lambda: client.responses.create(model=service, input="x", extra_body={"tool_output": 1}))
seen["no response"] = failure(lambda: client.responses.retrieve("resp_01a1fdacce837753badf368b3b8b6a04"))
print(json.dumps(seen))
