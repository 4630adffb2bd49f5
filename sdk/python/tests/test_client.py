"""The clients against a real gateway, whose address, key and services stand in the environment:

    DESKGATE_URL=… DESKGATE_KEY=… DESKGATE_SUBJECT=… SERVICES='{"answers": "ep_…", …}' DEVICE_FINGERPRINT=SHA256:… pytest sdk/python/tests
"""

import asyncio
import io
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from deskgate import (
    AsyncDeskgate,
    ConfigurationError,
    Deskgate,
    DeskgateError,
    NoAnswerError,
    ProblemError,
    RunError,
    VerificationError,
    WaitTimeoutError,
    receipts,
)
from lossy import LossyLine

SERVICES = json.loads(os.environ["SERVICES"])
URL = os.environ["DESKGATE_URL"]


@pytest.fixture
def client():
    with Deskgate() as client:
        yield client


@pytest.fixture
def at_once(monkeypatch):
    """Tries again without a pause."""
    monkeypatch.setattr("deskgate._sync.pause", lambda *_: 0.01)


def test_services_and_capabilities_are_read(client):
    listed = {service["name"]: service["id"] for service in client.services.list()}
    assert listed == SERVICES
    assert client.capabilities()["limits"]["body_bytes"] > 0


def test_work_is_asked_waited_for_and_given_with_its_result(client):
    run = client.runs.ask(SERVICES["answers"], "order 4711", metadata={"case": "7"})
    assert (run["state"], run["result"]["text"], run["metadata"]) == ("succeeded", "Answer to order 4711.", {"case": "7"})
    assert client.runs.read(run["run_id"])["result"] == run["result"]
    typed = client.runs.ask(SERVICES["counts"], "count")
    assert typed["result"]["data"] == {"count": 3}


def test_a_key_of_ones_own_is_one_run_and_other_work_under_it_is_refused(client):
    first, again = [client.runs.submit(SERVICES["answers"], "once", idempotency_key="order-1") for _ in range(2)]
    assert first["run_id"] == again["run_id"]
    with pytest.raises(ProblemError) as refused:
        client.runs.submit(SERVICES["answers"], "twice", idempotency_key="order-1")
    assert (refused.value.code, refused.value.status, refused.value.retryable) == ("idempotency_key_reused", 409, False)
    assert refused.value.problem["existing_run_id"] == first["run_id"]


def test_every_event_comes_once_and_in_order_and_can_be_resumed_behind_each(client):
    # Python would end lines at these, and JSON does not escape them.
    run = client.runs.submit(SERVICES["answers"], "events \u2028 \u0085 \x1c")
    events = [event for event in client.runs.follow(run["run_id"]) if "sequence" in event]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("run.accepted", "run.succeeded")
    for after in range(len(events) + 1):
        rest = [event["sequence"] for event in client.runs.follow(run["run_id"], after=after) if "sequence" in event]
        assert rest == list(range(after + 1, len(events) + 1))


def test_a_run_that_does_not_succeed_is_an_error_with_its_effects(client):
    run = client.runs.submit(SERVICES["slow"], "wait")
    began = time.monotonic()
    with pytest.raises(TimeoutError) as late:
        client.runs.ask(SERVICES["slow"], "wait", timeout=2)
    assert isinstance(late.value, WaitTimeoutError) and late.value.run_id and 1.5 < time.monotonic() - began < 3.5
    client.runs.stop(late.value.run_id)
    with pytest.raises(TimeoutError):
        client.runs.wait(run["run_id"], timeout=0.5)
    assert client.runs.stop(run["run_id"], reason="no longer needed")["kind"] == "run.stop"
    ended = client.runs.wait(run["run_id"], timeout=60)
    assert ended["state"] == "cancelled"
    with pytest.raises(RunError) as failed:
        client.runs.ask(SERVICES["fails"], "x")
    assert (failed.value.code, failed.value.effects) == ("max_turns_exceeded", "none")
    assert failed.value.run["state"] == "failed"


def test_conversations_go_on_wait_and_are_reset(client):
    talk = client.conversations.open(SERVICES["answers"], "customer 7")
    assert client.conversations.open(SERVICES["answers"], "customer 7")["conversation_id"] == talk["conversation_id"]
    said = [client.conversations.say(talk, text, on_busy="enqueue") for text in ("one", "two", "three")]
    texts = [client.runs.wait(run["run_id"], timeout=60)["result"]["text"] for run in said]
    assert texts == ["Answer to one.", "Answer to two.", "Answer to three."]
    assert [run["run_id"] for run in client.conversations.messages(talk["conversation_id"])] == [run["run_id"] for run in reversed(said)]
    operation = client.conversations.reset(client.conversations.read(talk["conversation_id"]))
    while client.operation(operation["operation_id"])["state"] not in ("completed", "failed"):
        time.sleep(0.05)
    assert client.conversations.read(talk["conversation_id"])["generation"] == 2


def test_files_go_in_and_come_out(client, at_once):
    content = os.urandom(300_000)
    file = client.files.upload(content, "letter.bin")
    assert client.files.read(file["file_id"])["size"] == len(content)
    run = client.runs.ask(SERVICES["files"], "hand it out", files=[file])
    assert run["input"]["files"][0]["name"] == "letter.bin"
    line = LossyLine(URL, 0.6, 200_000)
    with Deskgate(line.url) as lossy:
        for artifact in run["artifacts"]:
            taken = io.BytesIO()
            assert lossy.runs.download(run["run_id"], artifact, taken) == artifact["size"]
            assert taken.getvalue() == b"A file.\n" * 40_000
    line.close()
    unused = client.files.upload(io.BytesIO(b"x"), "unused.txt", media_type="text/plain")
    client.files.delete(unused["file_id"])
    with pytest.raises(ProblemError, match="not_found"):
        client.files.read(unused["file_id"])


def test_lists_are_read_page_by_page(client):
    subject = client.for_subject("lists")
    made = [subject.runs.submit(SERVICES["answers"], f"{number}")["run_id"] for number in range(7)]
    assert [run["run_id"] for run in subject.runs.list(limit=3)] == list(reversed(made))
    assert [run["run_id"] for run in subject.runs.list(endpoint_id=SERVICES["slow"])] == []
    subject.runs.wait(made[0], timeout=60)
    subject.runs.delete_content(made[0])
    assert "result" not in subject.runs.read(made[0])


def test_refusals_say_what_is_wrong_and_where(client):
    with pytest.raises(ProblemError) as refused:
        client.runs.submit(SERVICES["answers"], "")
    assert (refused.value.code, refused.value.errors[0]["pointer"]) == ("invalid_input", "/input/text")
    assert refused.value.request_id
    with pytest.raises(ProblemError, match="not_found"):
        client.runs.read("run_00000000000000000000000000000000")
    with pytest.raises(ProblemError) as stranger:
        Deskgate(key="dgk_wrong").services.list()
    assert (stranger.value.code, stranger.value.status) == ("credential_invalid", 401)
    with pytest.raises(ConfigurationError, match="DESKGATE_KEY"):
        os.environ["DESKGATE_KEY"], kept = "", os.environ["DESKGATE_KEY"]
        try:
            Deskgate()
        finally:
            os.environ["DESKGATE_KEY"] = kept


def test_what_cannot_be_sent_is_told_at_once_and_no_secret_with_it(client):
    for wrong in ("../../x", "run_1/content", "run_1?x=1", ""):
        with pytest.raises(DeskgateError, match="no identifier"):
            client.runs.read(wrong)
    for settings in ({"key": "dgk_canary\n"}, {"key": "dgk canary"}, {"base_url": "gateway.example"}, {"subject": "größe"}, {"subject": ""}):
        with pytest.raises(ConfigurationError) as refused:
            Deskgate(**settings)
        assert "canary" not in str(refused.value)
    with pytest.raises(ConfigurationError):
        client.for_subject("")


def test_a_gateway_that_is_not_there_is_told_after_five_tries(monkeypatch):
    slept = []
    monkeypatch.setattr("deskgate._sync.time.sleep", slept.append)
    with Deskgate("http://127.0.0.1:9") as nobody, pytest.raises(NoAnswerError):
        nobody.services.list()
    with Deskgate("http://127.0.0.1:9") as nobody, pytest.raises(NoAnswerError) as unanswered:
        nobody.runs.submit("ep_1", "x", idempotency_key="kept")
    assert unanswered.value.idempotency_key == "kept"
    assert len(slept) == 8 and all(2**tries <= pause < 2**tries + 1 for tries, pause in enumerate(slept[:4]))


def test_work_behind_a_line_that_cuts_answers_is_done_once(client, at_once):
    line = LossyLine(URL, 0.4, 1_500)
    with Deskgate(line.url, subject="cuts") as lossy, ThreadPoolExecutor(12) as workers:

        def ask(number):
            return lossy.runs.ask(SERVICES["answers"], f"question {number}", timeout=120)["result"]["text"]

        answers = list(workers.map(ask, range(60)))
    line.close()
    assert answers == [f"Answer to question {number}." for number in range(60)]
    assert len(list(client.for_subject("cuts").runs.list(limit=100))) == 60
    assert line.cuts > 30


def test_a_stream_over_a_line_that_cuts_loses_and_repeats_nothing(at_once):
    line = LossyLine(URL, 0.6, 6_000)
    with Deskgate(line.url) as lossy:
        for number in range(10):
            run = lossy.runs.submit(SERVICES["answers"], f"stream {number}")
            events = [event["sequence"] for event in lossy.runs.follow(run["run_id"]) if "sequence" in event]
            assert events == list(range(1, len(events) + 1)) and len(events) > 3
    line.close()
    assert line.cuts > 0


def test_a_receipt_shows_what_the_desktop_said(client):
    run = client.runs.ask(SERVICES["answers"], {"text": "signed", "amount": 0.1, "größe": [1, 2.50, None], "10": 1, "9": 2})
    said = receipts.verify(run, os.environ["DEVICE_FINGERPRINT"], input=run["input"])
    assert (said["state"], said["effects"]) == ("succeeded", "none")
    forged = {**run, "result": {**run["result"], "text": "Pay at once."}}
    own = os.environ["DEVICE_FINGERPRINT"]
    moved, asked = {**run, "conversation_id": "conv_1"}, {**run, "input": {"text": "other"}}
    for record, fingerprint in ((forged, own), (moved, own), (asked, own), (run, "SHA256:other"), ({"state": "failed"}, "x")):
        with pytest.raises(VerificationError):
            receipts.verify(record, fingerprint)
    with pytest.raises(VerificationError, match="input"):
        receipts.verify(run, own, input={"text": "other"})
    file = client.files.upload(b"x", "x.txt")
    sent = {"text": "with a file", "files": [{"file_id": file["file_id"]}]}
    given = client.runs.ask(SERVICES["files"], sent)
    receipts.verify(given, own, input=sent)
    client.runs.delete_content(given["run_id"])
    receipts.verify(client.runs.read(given["run_id"]), own)


def test_the_asynchronous_client_does_the_same():
    async def journey():
        async with AsyncDeskgate() as client:
            runs = await asyncio.gather(*(client.runs.ask(SERVICES["answers"], f"{number}") for number in range(4)))
            assert [run["result"]["text"] for run in runs] == [f"Answer to {number}." for number in range(4)]
            events = [event async for event in client.runs.follow(runs[0]["run_id"])]
            assert events[-1]["type"] == "run.succeeded"
            run = await client.runs.submit(SERVICES["slow"], "wait")
            waiting = asyncio.create_task(client.runs.wait(run["run_id"]))
            await client.runs.stop(run["run_id"])
            assert (await waiting)["state"] == "cancelled"
            file = await client.files.upload(b"x", "x.txt")
            assert file["file_id"] in [known["file_id"] async for known in client.files.list()]
            with pytest.raises(ProblemError, match="not_found"):
                await client.runs.read("run_00000000000000000000000000000000")

    asyncio.run(journey())
