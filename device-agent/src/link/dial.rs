//! Dials over a network that may be down and return at any moment.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The delay until a further try begins beside the unfinished ones. The kernel repeats its own attempts ever more
/// rarely, so it would notice a restored network seconds late.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout of a later try. Later tries are for a restored network; the first one, for a slow network, has no
/// timeout. So there are few at a time.
const RETRY_TIMEOUT: Duration = Duration::from_millis(1500);

/// Connects: the first try with a result decides. Continues forever without one; dropping the future ends all tries.
pub(super) async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    staggered(|| TcpStream::connect((host, port)), |_| true).await
}

/// Makes a try, and further ones beside it while it has no result. The first one decides by any result, a later one by
/// success and by each error that is an `answer`.
pub(super) async fn staggered<T, E, F: Future<Output = Result<T, E>>>(
    attempt: impl Fn() -> F,
    answer: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let mut first = Box::pin(attempt());
    let mut later = FuturesUnordered::new();
    let mut again = interval(RETRY_INTERVAL);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    again.reset();
    loop {
        tokio::select! {
            connected = &mut first => return connected,
            Some(tried) = later.next() => match tried {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) if answer(&error) => return Err(error),
                // The first one still has time.
                Ok(Err(_)) | Err(_) => {}
            },
            _ = again.tick() => later.push(Box::pin(timeout(RETRY_TIMEOUT, attempt()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn who_answers_late_is_reached_by_a_later_try() {
        // The accept queue of one that is full: the kernel drops connection attempts, as a dead network does.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let listener = socket.listen(0).expect("it is bound");
        let port = listener.local_addr().expect("it is bound").port();
        let mut filling = Vec::new();
        while let Ok(Ok(stream)) = timeout(Duration::from_millis(100), TcpStream::connect(("127.0.0.1", port))).await {
            filling.push(stream);
        }
        let began = std::time::Instant::now();
        let (dialled, ()) = tokio::join!(dial("127.0.0.1", port), async {
            tokio::time::sleep(RETRY_INTERVAL * 3 + RETRY_INTERVAL / 2).await;
            for _ in &filling {
                let _ = listener.accept().await;
            }
        });
        dialled.expect("there is room now");
        // The kernel's own retries would have come after one, three and seven seconds.
        assert!(began.elapsed() < RETRY_INTERVAL * 5, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_later_try_takes_over_from_one_that_hangs_and_its_failure_alone_ends_nothing() {
        let tries = std::sync::atomic::AtomicU32::new(0);
        let attempt = || {
            let number = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move {
                match number {
                    0 => std::future::pending().await,
                    1 | 2 => Err("the network is down"),
                    _ => Ok(number),
                }
            }
        };
        assert_eq!(staggered(attempt, |_| false).await, Ok(3));
    }

    #[tokio::test]
    async fn a_refusal_is_the_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let refused = dial("127.0.0.1", port).await.expect_err("nobody is there");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
