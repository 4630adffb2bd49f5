"""The whole journey with nothing but the generated client: directory, submission, result, list, problem, conversation, stop."""

import os
import time

from deskgate_client import AuthenticatedClient
from deskgate_client.api.control_operations import read_control_operation
from deskgate_client.api.conversations import open_conversation, read_conversation, reset_conversation, send_message
from deskgate_client.api.runs import list_runs, read_run, stop_run, submit_run
from deskgate_client.api.services import list_services
from deskgate_client.models import (
    ConversationCallback, Message, NewConversation, NewInput, NewReset, NewStop, Phase, Problem, RunCallback, Submission,
    SubmissionMetadata, TestCallback,
)

client = AuthenticatedClient(base_url=os.environ["BASE_URL"], token=os.environ["APP_KEY"], timeout=60)
subject = os.environ["SUBJECT"]

directory = list_services.sync(client=client, x_gateway_subject=subject)
endpoint = next(each for each in directory.endpoints if each.id == os.environ["ENDPOINT_ID"])
assert endpoint.device.connected, endpoint

body = Submission(input_=NewInput(text="What does order 4711 say?"), metadata=SubmissionMetadata.from_dict({"ticket": "T-1"}))
arguments = dict(client=client, x_gateway_subject=subject, idempotency_key="journey-1", body=body)
accepted = submit_run.sync_detailed(endpoint.id, **arguments)
assert accepted.status_code == 202, accepted
run = accepted.parsed
again = submit_run.sync_detailed(endpoint.id, **arguments)
assert again.parsed.run_id == run.run_id and again.headers["Idempotency-Replayed"] == "true", again

while run.phase != Phase.FINAL:
    run = read_run.sync(run.run_id, client=client, x_gateway_subject=subject, wait=30)
assert run.state == "succeeded" and "three green lamps" in run.result.text, run
assert run.metadata["ticket"] == "T-1", run

page = list_runs.sync(client=client, x_gateway_subject=subject, idempotency_key="journey-1")
assert [each.run_id for each in page.data] == [run.run_id] and not page.has_more, page

body.input_.text = "Something else."
problem = submit_run.sync(endpoint.id, **arguments)
assert isinstance(problem, Problem) and problem.code == "idempotency_key_reused", problem
assert problem.existing_run_id == run.run_id, problem
stranger = read_run.sync_detailed(run.run_id, client=client, x_gateway_subject="somebody-else")
assert stranger.status_code == 404 and stranger.parsed.code == "not_found", stranger

caller = dict(client=client, x_gateway_subject=subject)


def completed(operation):
    while operation.state not in ("completed", "failed"):
        time.sleep(0.1)
        operation = read_control_operation.sync(operation.operation_id, **caller)
    return operation.outcome


opening = NewConversation(endpoint_id=endpoint.id, conversation_key="journey")
talk = open_conversation.sync(**caller, idempotency_key="journey-2", body=opening)
again = open_conversation.sync_detailed(**caller, idempotency_key="journey-3", body=opening)
assert again.status_code == 200 and again.parsed.conversation_id == talk.conversation_id, again
said = Message(expected_generation=talk.generation, input_=NewInput(text="What does order 4711 say?"))
run = send_message.sync(talk.conversation_id, **caller, idempotency_key="journey-4", body=said)
assert run.conversation_id == talk.conversation_id and run.generation == 1, run
while run.phase != Phase.FINAL:
    run = read_run.sync(run.run_id, **caller, wait=30)
assert run.state == "succeeded", run

reset = reset_conversation.sync(
    talk.conversation_id, **caller, idempotency_key="journey-5", body=NewReset(expected_generation=1))
outcome = completed(reset)
assert outcome.code == "reset" and outcome.new_generation == 2, outcome
assert read_conversation.sync(talk.conversation_id, **caller).generation == 2
late = send_message.sync(talk.conversation_id, **caller, idempotency_key="journey-6", body=said)
assert isinstance(late, Problem) and late.code == "generation_mismatch" and late.current_generation == 2, late

body.input_.text = "What is due on Friday?"
run = submit_run.sync(endpoint.id, **caller, idempotency_key="journey-7", body=body)
stop = stop_run.sync(run.run_id, **caller, idempotency_key="journey-8", body=NewStop(reason="The order was withdrawn."))
assert stop.target.run_id == run.run_id, stop
outcome = completed(stop)
run = read_run.sync(run.run_id, **caller)
assert run.phase == Phase.FINAL and run.state == outcome.run_state, (run, outcome)
assert (outcome.code, run.state) in [("stopped", "cancelled"), ("already_final", "succeeded")], (outcome, run)

# What a receiver of callbacks reads is a type too.
at = "2026-11-21T09:14:54.903Z"
told = RunCallback.from_dict({"type": "run.succeeded", "timestamp": at, "data": {"sequence": 9, "run": run.to_dict()}})
assert told.type_ == "run.succeeded" and told.data.run.run_id == run.run_id, told
told = ConversationCallback.from_dict({"type": "conversation.reset", "timestamp": at, "data": {"conversation": talk.to_dict()}})
assert told.data.conversation.generation == 1, told
assert TestCallback.from_dict({"type": "webhook.test", "timestamp": at, "data": {"message": "x"}}).data.message == "x"
print("arrived")
