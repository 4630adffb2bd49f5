//! How it stands with the account of a hosted gateway.

use super::{Code, Finding};
use crate::account::{AccountError, Standing};

/// What is wrong with it, where the gateway in force takes accounts.
pub fn look(gateway: &str, standing: &Result<Standing, AccountError>) -> Option<Finding> {
    let sign_in = "Sign in: deskgate connection sign-in";
    match standing {
        Ok(Standing::SignedIn { trouble: None, .. }) => None,
        Ok(Standing::SignedIn { trouble: Some(trouble), .. }) => {
            Some(Finding::new(Code::IssuerUnreachable, trouble, "Nothing: it is asked again by itself."))
        }
        Ok(Standing::SignedOut { why }) => {
            let why = why.as_ref().map(|why| format!(" The last try: {why}.")).unwrap_or_default();
            Some(Finding::new(Code::SignedOut, format!("Nobody is signed in at {gateway}.{why}"), sign_in))
        }
        Ok(Standing::Waiting { invitation }) => {
            let text = format!("A sign-in at {gateway} waits for you.");
            let next = format!("Open {} and enter {}", invitation.verification_uri, invitation.user_code);
            Some(Finding::new(Code::SignedOut, text, next))
        }
        Ok(Standing::Refused { issuer, why }) => {
            Some(Finding::new(Code::SignInRefused, format!("{issuer} refuses to renew it: {why}."), sign_in))
        }
        Err(error) => Some(Finding::new(Code::SignedOut, error.to_string(), sign_in)),
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::Timestamp;

    use super::*;

    #[test]
    fn each_standing_has_its_problem_or_none() {
        let code = |standing| look("https://gateway.example.com", &Ok(standing)).map(|finding| finding.code);
        let signed_in = |trouble: Option<&str>| Standing::SignedIn {
            issuer: "https://id.example.com".to_owned(),
            since: Timestamp::now(),
            trouble: trouble.map(str::to_owned),
        };
        let refused = Standing::Refused { issuer: "i".to_owned(), why: "invalid_grant".to_owned() };
        assert_eq!(code(signed_in(None)), None);
        assert_eq!(code(signed_in(Some("away"))), Some(Code::IssuerUnreachable));
        assert_eq!(code(Standing::SignedOut { why: None }), Some(Code::SignedOut));
        assert_eq!(code(refused), Some(Code::SignInRefused));
        assert!(look("g", &Err(AccountError::Kept("x".to_owned()))).is_some());
    }
}
