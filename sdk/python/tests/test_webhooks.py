"""Callbacks: the example of the specification of Standard Webhooks."""

import pytest
from deskgate import VerificationError, webhooks

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HEADERS = {
    "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "Webhook-Timestamp": "1614265330",
    "Webhook-Signature": "v1,bm9uZQ== v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
BODY = b'{"test": 2432232314}'


def test_a_genuine_callback_is_its_event():
    assert webhooks.verify(HEADERS, BODY, SECRET, now=1614265330) == {"test": 2432232314}
    assert webhooks.verify(HEADERS, BODY.decode(), SECRET, now=1614265630) == {"test": 2432232314}


@pytest.mark.parametrize(
    ("headers", "body", "secret", "now"),
    [
        (HEADERS, b'{"test": 2432232315}', SECRET, 1614265330),
        (HEADERS, BODY, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx", 1614265330),
        (HEADERS, BODY, "whsec_no base64", 1614265330),
        (HEADERS, BODY, SECRET, 1614265631),
        (HEADERS, BODY, SECRET, 1614265029),
        ({**HEADERS, "Webhook-Timestamp": "now"}, BODY, SECRET, 1614265330),
        ({**HEADERS, "Webhook-Signature": "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}, BODY, SECRET, 1614265330),
        ({**HEADERS, "Webhook-Timestamp": "9" * 400}, BODY, SECRET, 1614265330),
        ({**HEADERS, "Webhook-Signature": "v1,é"}, BODY, SECRET, 1614265330),
        (HEADERS, BODY, "", 1614265330),
        (HEADERS, BODY, "whsec_", 1614265330),
        ({}, BODY, SECRET, 1614265330),
    ],
)
def test_any_other_is_refused(headers, body, secret, now):
    with pytest.raises(VerificationError):
        webhooks.verify(headers, body, secret, now=now)
