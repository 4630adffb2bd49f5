//! What the line to the gateway says.

use deskgate_protocol::Half;
use deskgate_protocol::control::RefusedCode;

use super::{Code, Finding};
use crate::link::{LinkStatus, Stage};

/// What is wrong with a line. While it dials nothing is known anew: whatever was found `before` stays.
pub fn look(status: &LinkStatus, before: Option<Finding>) -> Option<Finding> {
    let code = match status {
        LinkStatus::Connected { .. } => return None,
        LinkStatus::Connecting => return before,
        LinkStatus::Disconnected { failed_at, .. } => match failed_at {
            Some(Stage::HostKey) => Code::HostKeyNotTrusted,
            Some(Stage::DeviceKey | Stage::Device) => Code::DeviceNotAccepted,
            // What the account itself says is more.
            Some(Stage::Account | Stage::Issuer) => return None,
            Some(Stage::Token) => Code::ControlTokenRefused,
            Some(Stage::AccessToken) => Code::SignInRefused,
            Some(Stage::Version) => Code::VersionMismatch,
            Some(Stage::Address | Stage::Socket) | None => Code::GatewayUnreachable,
        },
        LinkStatus::Refused { refused, .. } => match refused.code {
            RefusedCode::VersionMismatch => Code::VersionMismatch,
            RefusedCode::Unavailable => Code::GatewayUnreachable,
            _ => Code::DeviceNotAccepted,
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
        Code::HostKeyNotTrusted => "Compare the fingerprints with the server's administrator before you pin one.",
        Code::VersionMismatch => match upgraded(status) {
            Some(Half::Gateway) => {
                "Ask the server's administrator to upgrade deskgate-gateway to this device's major and minor version."
            }
            Some(Half::Device) => "Upgrade deskgate on this computer to the gateway's major and minor version.",
            None => "Install the same version on both sides.",
        },
        Code::DeviceNotAccepted if text.contains("account") => {
            "Sign in with the account that has this device, or ask the gateway's administrator."
        }
        Code::DeviceNotAccepted => {
            "Pair this device: deskgate identity export FILE, and give that to the administrator."
        }
        Code::ControlTokenRefused => "Enter the current one: deskgate connection save --mode remote --token-file FILE",
        Code::SignInRefused => "Sign in again: deskgate connection sign-in",
        _ => "Test it: deskgate connection test. It is dialled again by itself.",
    };
    Some(Finding::new(code, text, next))
}

/// Which half is to be upgraded, if the gateway said so.
fn upgraded(status: &LinkStatus) -> Option<Half> {
    match status {
        LinkStatus::Refused { refused, .. } => refused.upgrade,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::control::Refused;

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
            refused: Refused {
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
        assert_eq!(code(&down(Some(Stage::HostKey))), Some(Code::HostKeyNotTrusted));
        assert_eq!(code(&down(Some(Stage::Token))), Some(Code::ControlTokenRefused));
        assert_eq!(code(&down(None)), Some(Code::GatewayUnreachable));
        assert_eq!(code(&refused(RefusedCode::VersionMismatch)), Some(Code::VersionMismatch));
        assert_eq!(code(&refused(RefusedCode::RevokedDevice)), Some(Code::DeviceNotAccepted));
        let before = look(&refused(RefusedCode::VersionMismatch), None);
        assert!(before.as_ref().is_some_and(|finding| finding.text.contains("9.9.9")));
        assert_eq!(look(&LinkStatus::Connecting, before.clone()), before);
        assert_eq!(look(&LinkStatus::Connecting, None), None);
    }
}
