//! Problems of a hosted gateway's account.

use super::{Finding, ProblemCode};
use crate::account::{AccountError, AccountStatus};

/// The problem of the account, if the gateway in force takes accounts.
pub fn look(gateway: &str, standing: &Result<AccountStatus, AccountError>) -> Option<Finding> {
    let sign_in = "Sign in: deskgate connection sign-in";
    match standing {
        Ok(AccountStatus::SignedIn { trouble: None, .. }) => None,
        Ok(AccountStatus::SignedIn { trouble: Some(trouble), .. }) => {
            Some(Finding::new(ProblemCode::IssuerUnreachable, trouble, "Nothing: it is asked again by itself."))
        }
        Ok(AccountStatus::SignedOut { why }) => {
            let why = why.as_ref().map(|why| format!(" The last try: {why}.")).unwrap_or_default();
            Some(Finding::new(ProblemCode::SignedOut, format!("Nobody is signed in at {gateway}.{why}"), sign_in))
        }
        Ok(AccountStatus::Waiting { invitation }) => {
            let text = format!("A sign-in at {gateway} waits for you.");
            let next = format!("Open {} and enter {}", invitation.verification_uri, invitation.user_code);
            Some(Finding::new(ProblemCode::SignedOut, text, next))
        }
        Ok(AccountStatus::Refused { issuer, why }) => {
            Some(Finding::new(ProblemCode::SignInRefused, format!("{issuer} refuses to renew it: {why}."), sign_in))
        }
        Err(error) => Some(Finding::new(ProblemCode::SignedOut, error.to_string(), sign_in)),
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::Timestamp;

    use super::*;

    #[test]
    fn each_standing_has_its_problem_or_none() {
        let code = |standing| look("https://gateway.example.com", &Ok(standing)).map(|finding| finding.code);
        let signed_in = |trouble: Option<&str>| AccountStatus::SignedIn {
            issuer: "https://id.example.com".to_owned(),
            since: Timestamp::now(),
            trouble: trouble.map(str::to_owned),
        };
        let refused = AccountStatus::Refused { issuer: "i".to_owned(), why: "invalid_grant".to_owned() };
        assert_eq!(code(signed_in(None)), None);
        assert_eq!(code(signed_in(Some("away"))), Some(ProblemCode::IssuerUnreachable));
        assert_eq!(code(AccountStatus::SignedOut { why: None }), Some(ProblemCode::SignedOut));
        assert_eq!(code(refused), Some(ProblemCode::SignInRefused));
        assert!(look("g", &Err(AccountError::Kept("x".to_owned()))).is_some());
    }
}
