//! A time span on a command line, and polling for so long.

use std::time::{Duration, Instant};

/// The longest span: about a hundred years, which can still be added to any clock.
const MAX_DURATION: Duration = Duration::from_secs(100 * 8766 * 3600);

/// Reads a time span such as 500ms, 60s, 10m or 2h; at most a hundred years.
///
/// # Errors
/// The text is no time span; the error describes the form.
pub fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "a number and a unit, such as 60s or 10m".to_owned())?;
    let duration = match unit {
        "ms" => Duration::from_millis(number),
        "s" | "" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        "h" => Duration::from_secs(number.saturating_mul(3600)),
        _ => return Err("a number and a unit, such as 500ms, 60s, 10m or 2h".to_owned()),
    };
    if duration > MAX_DURATION {
        return Err(format!("a time of at most {}h, which is a hundred years", MAX_DURATION.as_secs() / 3600));
    }
    Ok(duration)
}

/// Repeats a query each second until its result is `ended`, or the time is over; returns the last result.
///
/// # Errors
/// Those of the query.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_number_and_a_unit_and_ends_before_every_clock_does() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!((parse("90"), parse("2h")), (Ok(Duration::from_secs(90)), Ok(Duration::from_secs(7200))));
        let longest = parse("876600h").expect("a hundred years");
        assert!(Instant::now().checked_add(longest).is_some());
        for wrong in ["", "s", "-1s", "1d", "1.5h", "876601h", "18446744073709551615s", "18446744073709551616s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
