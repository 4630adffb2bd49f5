"""The whole journey with nothing but the generated client: directory, submission, result, list, problem."""

import os

from deskgate_client import AuthenticatedClient
from deskgate_client.api.runs import list_runs, read_run, submit_run
from deskgate_client.api.services import list_endpoints
from deskgate_client.models import NewInput, Phase, Problem, Submission, SubmissionMetadata

client = AuthenticatedClient(base_url=os.environ["BASE_URL"], token=os.environ["APP_KEY"], timeout=60)
subject = os.environ["SUBJECT"]

directory = list_endpoints.sync(client=client, x_gateway_subject=subject)
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
print("arrived")
