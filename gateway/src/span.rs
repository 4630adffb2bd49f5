//! A span of time on a command line, and waiting for so long.

use std::time::{Duration, Instant};

/// Reads a time such as 500ms, 60s, 10m or 2h.
///
/// # Errors
/// What it should look like.
pub fn span(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "a number and a unit, such as 60s or 10m".to_owned())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" | "" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        "h" => Ok(Duration::from_secs(number.saturating_mul(3600))),
        _ => Err("a number and a unit, such as 500ms, 60s, 10m or 2h".to_owned()),
    }
}

/// Asks again each second until what is answered is `ended`, or the time is over; the last answer.
///
/// # Errors
/// Those of the question.
pub async fn until<T, E>(
    wait: Duration,
    mut answer: T,
    ended: impl Fn(&T) -> bool,
    mut ask: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + wait;
    while !ended(&answer) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
        answer = ask().await?;
    }
    Ok(answer)
}
