//! Problems of the connection to the gateway.

use deskgate_protocol::Half;
use deskgate_protocol::control::RefusedCode;

use super::{Finding, ProblemCode};
use crate::link::{ConnectStage, LinkStatus};

/// The problem of a connection. During a dial there is no new result: the finding `before` stays.
pub fn look(status: &LinkStatus, before: Option<Finding>) -> Option<Finding> {
    let code = match status {
        LinkStatus::Connected { .. } => return None,
        LinkStatus::Connecting => return before,
        LinkStatus::Disconnected { failed_at, .. } => match failed_at {
            Some(ConnectStage::HostKey) => ProblemCode::HostKeyNotTrusted,
            Some(ConnectStage::Certificate) => ProblemCode::CertificateNotTrusted,
            Some(ConnectStage::Conduct) => ProblemCode::ServerHostile,
            Some(ConnectStage::Gateway) => ProblemCode::GatewayReplaced,
            Some(ConnectStage::DeviceKey | ConnectStage::Device) => ProblemCode::DeviceNotAccepted,
            // The account's own status gives more details.
            Some(ConnectStage::Account | ConnectStage::Issuer) => return None,
            Some(ConnectStage::Token) => ProblemCode::ControlTokenRefused,
            Some(ConnectStage::AccessToken) => ProblemCode::SignInRefused,
            Some(ConnectStage::Version) => ProblemCode::VersionMismatch,
            Some(ConnectStage::Address | ConnectStage::Socket) | None => ProblemCode::GatewayUnreachable,
        },
        LinkStatus::Refused { refused, .. } => match refused.code {
            RefusedCode::VersionMismatch => ProblemCode::VersionMismatch,
            RefusedCode::Unavailable => ProblemCode::GatewayUnreachable,
            RefusedCode::OtherServer => ProblemCode::HostKeyNotTrusted,
            _ => ProblemCode::DeviceNotAccepted,
        },
    };
    let text = match status {
        LinkStatus::Disconnected { why, .. } => why.clone(),
        LinkStatus::Refused { refused, .. } => {
            let own = deskgate_protocol::VERSION;
            let (message, gateway) = (&refused.message, &refused.gateway_version);
            match message.contains(gateway.as_str()) && message.contains(own) {
                true => message.clone(),
                false => format!("{message} The gateway has version {gateway}, this device {own}."),
            }
        }
        _ => String::new(),
    };
    let next = match code {
        ProblemCode::HostKeyNotTrusted => {
            "Compare the fingerprints with the server's administrator before you pin one."
        }
        ProblemCode::ServerHostile => {
            "Ask the server's administrator. It is dialled again by itself, every 30 s at most."
        }
        ProblemCode::GatewayReplaced => {
            "Ask its administrator. If it is meant, accept it with the command above; its applications and keys are new."
        }
        ProblemCode::VersionMismatch => match upgraded(status) {
            Some(Half::Gateway) => {
                "Ask the server's administrator to upgrade deskgate-gateway to this device's major and minor version."
            }
            Some(Half::Device) => "Upgrade deskgate on this computer to the gateway's major and minor version.",
            None => "Install the same version on both sides.",
        },
        ProblemCode::DeviceNotAccepted if text.contains("account") => {
            "Sign in with the account that has this device, or ask the gateway's administrator."
        }
        ProblemCode::CertificateNotTrusted => {
            "Ask the gateway's operator. It is dialled again by itself, every 30 s at most."
        }
        ProblemCode::DeviceNotAccepted if is_revoked(status) => {
            "If it is to come back, it needs a new identity: deskgate identity renew --accept-risk=lose-pairing. Then pair it: \
             deskgate pair"
        }
        ProblemCode::DeviceNotAccepted => {
            "Pair this device by an invitation of the gateway's administrator: deskgate pair. If it was removed there, first make \
             a new identity: deskgate identity renew --accept-risk=lose-pairing"
        }
        ProblemCode::ControlTokenRefused => {
            "Enter the current one: deskgate connection set --mode remote --token-file FILE"
        }
        ProblemCode::SignInRefused => "Sign in again: deskgate connection sign-in",
        _ => "Test it: deskgate connection test. It is dialled again by itself.",
    };
    Some(Finding::new(code, text, next))
}

fn is_revoked(status: &LinkStatus) -> bool {
    matches!(status, LinkStatus::Refused { refused, .. } if refused.code == RefusedCode::RevokedDevice)
}

/// Which half must be upgraded, if the gateway reported it.
fn upgraded(status: &LinkStatus) -> Option<Half> {
    match status {
        LinkStatus::Refused { refused, .. } => refused.upgrade,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::control::SessionRefusal;

    use super::*;

    #[test]
    fn each_end_of_a_line_has_its_code_and_dialling_changes_nothing() {
        let down = |failed_at| LinkStatus::Disconnected {
            why: "why".to_owned(),
            failed_at,
            host_keys: None,
            next_attempt_at: None,
        };
        let refused = |code| LinkStatus::Refused {
            refused: SessionRefusal {
                code,
                message: "No.".to_owned(),
                should_retry: false,
                retry_after_s: None,
                gateway_version: "9.9.9".to_owned(),
                device_version: None,
                upgrade: None,
            },
            next_attempt_at: None,
        };
        let code = |status: &LinkStatus| look(status, None).map(|finding| finding.code);
        assert_eq!(code(&down(Some(ConnectStage::HostKey))), Some(ProblemCode::HostKeyNotTrusted));
        assert_eq!(code(&down(Some(ConnectStage::Conduct))), Some(ProblemCode::ServerHostile));
        assert_eq!(code(&down(Some(ConnectStage::Gateway))), Some(ProblemCode::GatewayReplaced));
        assert_eq!(code(&refused(RefusedCode::OtherServer)), Some(ProblemCode::HostKeyNotTrusted));
        assert_eq!(code(&down(Some(ConnectStage::Token))), Some(ProblemCode::ControlTokenRefused));
        assert_eq!(code(&down(None)), Some(ProblemCode::GatewayUnreachable));
        assert_eq!(code(&refused(RefusedCode::VersionMismatch)), Some(ProblemCode::VersionMismatch));
        assert_eq!(code(&refused(RefusedCode::RevokedDevice)), Some(ProblemCode::DeviceNotAccepted));
        let before = look(&refused(RefusedCode::VersionMismatch), None);
        assert!(before.as_ref().is_some_and(|finding| finding.text.contains("9.9.9")));
        assert_eq!(look(&LinkStatus::Connecting, before.clone()), before);
        assert_eq!(look(&LinkStatus::Connecting, None), None);
    }
}
