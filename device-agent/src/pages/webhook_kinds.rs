//! How other systems sign their events: the defaults of a form, a sample event, and the steps on the other side.

use deskgate_protocol::conversation::OnBusy;
use deskgate_protocol::management::WebhookScheme;

use super::fields::FormFields;

/// One kind of webhook.
#[derive(Debug)]
pub(super) struct WebhookKind {
    /// The value of `deskgate hook create --scheme`.
    pub(super) word: &'static str,
    pub(super) name: &'static str,
    /// Which systems it is for.
    pub(super) about: &'static str,
    /// The steps on the other side, once there is an address.
    pub(super) steps: &'static [&'static str],
    /// Whether the other side makes the secret.
    pub(super) gives_secret: bool,
    /// The defaults of a new form.
    begins: &'static [(&'static str, &'static str)],
    /// A sample event: its headers and its body.
    sample: (&'static str, &'static str),
}

/// Every kind, the best known first.
pub(super) static ALL: [WebhookKind; 4] = [
    WebhookKind {
        word: "github",
        name: "GitHub",
        about: "Issues, pull requests, pushes and more of a repository or an organisation.",
        steps: &[
            "On GitHub, open the repository or organisation, then Settings, Webhooks, Add webhook.",
            "Payload URL: the address above. Content type: application/json. Secret: the secret.",
            "Choose the events that you want; the filter here takes a part of them.",
        ],
        gives_secret: false,
        begins: &[
            ("name", "GitHub issues"),
            ("event-type", "issues"),
            ("condition", "payload.action == 'opened'"),
            (
                "text",
                "Look at issue {{ $.issue.number }}: {{ $.issue.title }}\n\n{{ $.issue.body ?? \"It has no text.\" }}",
            ),
            ("subject-path", "$.sender.login"),
            ("label", "repository=$.repository.full_name"),
        ],
        sample: (
            "X-GitHub-Event: issues\nX-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958",
            r#"{
  "action": "opened",
  "issue": {
    "number": 12,
    "title": "The printer is on fire",
    "body": null,
    "labels": [{ "name": "bug" }]
  },
  "repository": { "full_name": "example/shop" },
  "sender": { "login": "berta" }
}"#,
        ),
    },
    WebhookKind {
        word: "stripe",
        name: "Stripe",
        about: "Payments, invoices and subscriptions.",
        steps: &[
            "In Stripe's dashboard, open Developers, Webhooks, and add an endpoint.",
            "Endpoint URL: the address above. Choose the events that you want.",
            "Stripe then shows a signing secret that begins with whsec_. Give it here; nothing counts before.",
        ],
        gives_secret: true,
        begins: &[
            ("name", "Stripe invoices"),
            ("event-type", "invoice.*"),
            ("text", "Invoice {{ $.data.object.id }}: {{ event.type }}"),
            ("subject-path", "$.data.object.customer"),
            ("label", "customer=$.data.object.customer"),
        ],
        sample: (
            "",
            r#"{
  "id": "evt_1NG8Du2eZvKYlo2CUI79vXWy",
  "type": "invoice.payment_failed",
  "data": {
    "object": { "id": "in_1880", "customer": "cus_4711", "amount_due": 1900, "currency": "eur" }
  }
}"#,
        ),
    },
    WebhookKind {
        word: "standard",
        name: "Standard Webhooks",
        about: "Systems that sign as standardwebhooks.com says, also those that send through Svix.",
        steps: &[
            "Register the address above with the other system.",
            "Give it the secret, or let it choose one that begins with whsec_ and give that here (Roll the secret).",
        ],
        gives_secret: false,
        begins: &[
            ("name", "Tickets"),
            ("event-type", "ticket.*"),
            ("condition", "payload.ticket.urgent"),
            ("text", "{{ event.type }}: {{ $.ticket.title }}"),
            ("subject-path", "$.ticket.customer"),
            ("subject", "unknown-customer"),
            ("label", "ticket=$.ticket.id"),
        ],
        sample: (
            "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek",
            r#"{
  "type": "ticket.created",
  "ticket": { "id": 1880, "customer": "customer-4711", "title": "The printer is on fire", "urgent": true }
}"#,
        ),
    },
    WebhookKind {
        word: "hmac",
        name: "Plain HMAC",
        about: "Anything else that puts an HMAC of the body into a header.",
        steps: &[
            "Register the address above with the other system.",
            "It computes an HMAC over the body with the secret, and puts it into the header that is named below.",
        ],
        gives_secret: false,
        begins: &[
            ("name", "Orders"),
            ("signature-header", "X-Signature"),
            ("algorithm", "sha256"),
            ("encoding", "hex"),
            ("prefix", "sha256="),
            ("event-id-from", "X-Request-Id"),
            ("event-type-from", "$.event"),
            ("text", "Order {{ $.order.id }}: {{ event.type }}"),
            ("subject", "shop"),
        ],
        sample: (
            "X-Request-Id: 0192f1c0-4711",
            r#"{
  "event": "order.changed",
  "order": { "id": 1880, "total": "19.00" }
}"#,
        ),
    },
];

/// The kind of this name.
pub(super) fn named(word: &str) -> Option<&'static WebhookKind> {
    ALL.iter().find(|kind| kind.word == word)
}

/// The kind of a webhook.
pub(super) fn of(scheme: &WebhookScheme) -> &'static WebhookKind {
    let place = match scheme {
        WebhookScheme::Github {} => 0,
        WebhookScheme::Stripe {} => 1,
        WebhookScheme::StandardWebhooks {} => 2,
        WebhookScheme::Hmac(_) => 3,
    };
    &ALL[place]
}

impl WebhookKind {
    /// The fields of a new webhook's form.
    pub(super) fn fresh(&self) -> FormFields {
        let own = self.begins.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let common = [("rate", "10"), ("on-busy", OnBusy::default().as_str())];
        let common = common.map(|(name, value)| (name.to_owned(), value.to_owned()));
        FormFields(own.chain(common).chain(self.sample()).collect())
    }

    /// The sample event.
    pub(super) fn sample(&self) -> [(String, String); 2] {
        [("with-header".to_owned(), self.sample.0.to_owned()), ("body".to_owned(), self.sample.1.to_owned())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::webhook_form;

    #[test]
    fn each_form_begins_with_settings_of_its_kind() {
        for kind in &ALL {
            let mut fields = kind.fresh();
            let endpoint = deskgate_protocol::EndpointId::new().to_string();
            fields.0.push(("service".to_owned(), endpoint));
            let settings = webhook_form::settings(&fields, kind).expect("whole");
            assert_eq!(of(&settings.scheme).word, kind.word);
            assert!(named(kind.word).is_some_and(|found| found.word == kind.word));
        }
    }
}
