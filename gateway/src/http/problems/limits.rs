//! The texts of problems that come from a limit or from the gateway itself, not from what was asked.

use axum::http::StatusCode;

use super::{ProblemFacts, ProblemMember, RetryAdvice};

pub(super) const RATE_LIMITED: ProblemFacts = ProblemFacts {
    status: StatusCode::TOO_MANY_REQUESTS,
    title: "Rate limited",
    retry: RetryAdvice::After("1"),
    what: "This key has made too many requests in too short a time or has too many with a body under way, its \
           application has too many streams or waiting reads open, or its address has too many requests \
           under way or sent too many without a valid key.",
    why: "Each key has a number of requests per second and a burst; `RateLimit-Policy` names them and `RateLimit` \
          what is left. Each key may have so many requests with a body under way, each application so many event \
          streams and waiting reads, and each address so many requests under way and so many a minute \
          without a valid key. `GET /capabilities` tells the \
          limits.",
    next: "Wait for as many seconds as `Retry-After` says. Read runs with `wait` or stream their events \
           instead of asking again and again; close streams that nobody reads.",
    members: &[],
};

pub(super) const QUEUE_FULL: ProblemFacts = ProblemFacts {
    status: StatusCode::TOO_MANY_REQUESTS,
    title: "Queue full",
    retry: RetryAdvice::After("5"),
    what: "Too many runs of this application wait for its devices.",
    why: "The desktop works more slowly than runs are submitted, or it is away. Nothing was accepted.",
    next: "Wait for as many seconds as `Retry-After` says, then send the same request with the same \
           `Idempotency-Key`.",
    members: &[],
};

pub(super) const TOO_MANY_UPLOADS: ProblemFacts = ProblemFacts {
    status: StatusCode::TOO_MANY_REQUESTS,
    title: "Too many uploads",
    retry: RetryAdvice::After("1"),
    what: "This key has as many uploads under way as it may.",
    why: "Each key may upload so many files at once; `GET /capabilities` tells how many. Nothing was read.",
    next: "Wait until one of them is answered, then send the file again.",
    members: &[],
};

pub(super) const STORAGE_FULL: ProblemFacts = ProblemFacts {
    status: StatusCode::TOO_MANY_REQUESTS,
    title: "Storage full",
    retry: RetryAdvice::After("60"),
    what: "The files and artifacts of this application take all the room that it has.",
    why: "Files are kept as long as runs have them, and artifacts as long as their runs. Nothing was stored.",
    next: "Delete files that no run has, and the content of ended runs that you have read; or ask the gateway's administrator for \
           more room.",
    members: &[ProblemMember {
        name: "limit_bytes",
        meaning: "The bytes that they may take together.",
        example: "5368709120",
    }],
};

pub(super) const STORAGE_UNAVAILABLE: ProblemFacts = ProblemFacts {
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Storage unavailable",
    retry: RetryAdvice::After("5"),
    what: "The gateway cannot keep or read files at the moment.",
    why: "The disk or the bucket where it keeps them is full or does not answer. Runs without files work all the same.",
    next: "Send the same request again, with the same `Idempotency-Key` if it has one.",
    members: &[],
};

pub(super) const HEAD_TOO_LARGE: ProblemFacts = ProblemFacts {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    title: "Head too large",
    retry: RetryAdvice::No,
    what: "The address and the headers of the request are together larger than a gateway reads.",
    why: "A header or the query string holds something that belongs into the body. Over HTTP/2, a head that is larger \
          by far is answered with this status and without a document.",
    next: "Send a smaller head: business content goes into the body, as `input`.",
    members: &[ProblemMember { name: "limit_bytes", meaning: "The largest head, in bytes.", example: "32768" }],
};

pub(super) const INTERNAL: ProblemFacts = ProblemFacts {
    status: StatusCode::INTERNAL_SERVER_ERROR,
    title: "Internal error",
    retry: RetryAdvice::Yes,
    what: "The gateway failed.",
    why: "This is a fault of the gateway. Its log describes it under the same `request_id`.",
    next: "Repeat the request with the same `Idempotency-Key`. If it fails again, give the `request_id` to the \
           gateway's administrator.",
    members: &[],
};

pub(super) const ACCESS_PAUSED: ProblemFacts = ProblemFacts {
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Access paused",
    retry: RetryAdvice::After("60"),
    what: "The owner of this service has paused external access, or has disabled this service.",
    why: "The owner of the desktop can switch access off and on at any time, for all services or for one. Nothing was \
          accepted; what was accepted before is kept.",
    next: "Send the same request later, with the same `Idempotency-Key`.",
    members: &[],
};

pub(super) const STORE_UNAVAILABLE: ProblemFacts = ProblemFacts {
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Store unavailable",
    retry: RetryAdvice::After("2"),
    what: "The gateway cannot reach its database.",
    why: "Nothing is answered from memory, so that an answer never says more than what is stored. Whether the \
          work was accepted is unknown when the connection was lost during the request.",
    next: "Send the same request with the same `Idempotency-Key`: if the work was accepted, its run comes back.",
    members: &[],
};

pub(super) const DRAINING: ProblemFacts = ProblemFacts {
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Draining",
    retry: RetryAdvice::After("1"),
    what: "This gateway is stopping.",
    why: "It finishes what it has begun and accepts nothing new. Nothing was accepted.",
    next: "Send the same request again, with the same `Idempotency-Key`; another gateway or the restarted one \
           takes it.",
    members: &[],
};
