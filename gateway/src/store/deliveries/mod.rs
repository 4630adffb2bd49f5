//! Deliveries: claimed by the first replica, settled by the attempt that holds them, read and sent again.
//!
//! | file | what it does |
//! |---|---|
//! | [`claims`] | claims due deliveries, and records the start of their attempts |
//! | [`outcomes`] | the outcomes of attempts, for the deliveries and their destinations |
//! | [`records`] | the deliveries that callers and owners read |
//! | [`manual`] | tests, samples, and sending again |
//! | `ends` | discards deliveries without a receiver, and deletes old ones |
//!
//! They are queued with their events: by triggers (`migrations/0011` and `0024`), and acceptances by the statements that accept.

pub mod claims;
mod ends;
pub mod manual;
pub mod outcomes;
pub mod records;

/// The destinations of an application that subscribe to acceptances, for the statements that accept: one step down an
/// index, whatever else is accepted (`OFFSET 0` keeps the look-up as it stands).
pub(super) const ACCEPTANCE_DESTINATIONS_SQL: &str = "LATERAL (SELECT destination_id FROM destinations
    WHERE app_id = s.app_id AND disabled_at IS NULL AND types @> '{run.accepted}'
        AND coalesce(expires_at, 'infinity') > now() OFFSET 0) w";

/// Whether an attempt of delivery `d` is under way, as far as is known.
const UNDER_WAY_CONDITION: &str =
    "(d.state = 'pending' AND d.due_at > now() AND EXISTS (SELECT FROM delivery_attempts x
    WHERE x.delivery_id = d.delivery_id AND x.attempt = d.attempt AND x.took_ms IS NULL))";
