//! A log's lines on their way out, in front of a thread that writes them: no task waits for a terminal or a log service,
//! and lines that come together are one write.
//!
//! What does not fit any more is lost and counted, because a log that nobody takes must not stop the program. A program
//! that is killed loses the lines of its last moment.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The most that waits to be written.
const MAX_BUFFERED_BYTES: usize = 1 << 20;
/// How long the thread lets lines come together after it has written.
const GATHER_TIME: Duration = Duration::from_millis(2);
/// How long a program that ends waits for its last lines to be taken.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static LOST_LINES: AtomicU64 = AtomicU64::new(0);

/// Lines that this program lost, since it began: they came faster than they were taken, or could not be written.
pub fn lost_lines() -> u64 {
    LOST_LINES.load(Ordering::Relaxed)
}

/// The end that lines go into. One write is whole lines.
#[derive(Clone, Debug)]
pub struct LogBuffer(Arc<Shared>);

/// Writes what is left when it is dropped.
#[derive(Debug)]
#[must_use = "without it, the last lines are lost"]
pub struct LogGuard(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    waiting: Vec<u8>,
    /// The thread waits for a line.
    is_idle: bool,
    is_closed: bool,
    is_written: bool,
}

impl LogBuffer {
    /// Starts the thread that writes to `to`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(to: impl Write + Send + 'static) -> io::Result<(Self, LogGuard)> {
        let shared = Arc::new(Shared::default());
        let writes = Arc::clone(&shared);
        thread::Builder::new().name("log".to_owned()).spawn(move || writes.write_out(to))?;
        Ok((Self(Arc::clone(&shared)), LogGuard(shared)))
    }
}

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock();
        if lines.is_closed || lines.waiting.len() + bytes.len() > MAX_BUFFERED_BYTES {
            count_lost(bytes);
        } else {
            lines.waiting.extend_from_slice(bytes);
            if std::mem::take(&mut lines.is_idle) {
                self.0.changed.notify_all();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        // No code panics while it holds the lock.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_out(&self, mut to: impl Write) {
        let mut taken = Vec::new();
        while self.take(&mut taken) {
            if to.write_all(&taken).and_then(|()| to.flush()).is_err() {
                count_lost(&taken);
            }
            taken.clear();
            let lines = self.lock();
            let gathers = |lines: &mut Lines| !lines.is_closed;
            drop(self.changed.wait_timeout_while(lines, GATHER_TIME, gathers));
        }
        self.lock().is_written = true;
        self.changed.notify_all();
    }

    /// Waits for lines, and takes all. False if there will be none.
    fn take(&self, taken: &mut Vec<u8>) -> bool {
        let mut lines = self.lock();
        while lines.waiting.is_empty() && !lines.is_closed {
            lines.is_idle = true;
            lines = self.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
        lines.is_idle = false;
        std::mem::swap(&mut lines.waiting, taken);
        !taken.is_empty()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let mut lines = self.0.lock();
        lines.is_closed = true;
        self.0.changed.notify_all();
        drop(self.0.changed.wait_timeout_while(lines, FLUSH_TIMEOUT, |lines| !lines.is_written));
    }
}

fn count_lost(bytes: &[u8]) {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    LOST_LINES.fetch_add(lines as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Hands on each write, once it may.
    struct Gate {
        may_write: mpsc::Receiver<()>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.may_write.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.written.send(bytes.to_vec()).expect("somebody reads");
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lost lines are counted for the whole program.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn lines_that_come_while_one_is_written_are_one_write_and_what_does_not_fit_is_lost_and_counted() {
        let _alone = ONE_AT_A_TIME.lock();
        let ((open, may_write), (written, writes)) = (mpsc::channel(), mpsc::channel());
        let (mut log, guard) = LogBuffer::start(Gate { may_write, written }).expect("a thread");
        log.write_all(b"one\n").expect("it never fails");
        while !log.0.lock().waiting.is_empty() {
            thread::yield_now();
        }
        log.write_all(b"two\n").expect("it never fails");
        log.write_all(b"three\n").expect("it never fails");
        let before = lost_lines();
        log.write_all(&[&vec![b'x'; MAX_BUFFERED_BYTES][..], b"\n"].concat()).expect("it never fails");
        assert_eq!(lost_lines() - before, 1);
        (0..2).for_each(|_| open.send(()).expect("it waits"));
        drop(guard);
        assert_eq!(writes.iter().collect::<Vec<_>>(), [b"one\n".to_vec(), b"two\nthree\n".to_vec()]);
        log.write_all(b"too late\n").expect("it never fails");
        assert_eq!(lost_lines() - before, 2);
    }

    #[test]
    fn a_log_that_nobody_takes_stops_neither_the_program_nor_its_end() {
        let _alone = ONE_AT_A_TIME.lock();
        let ((_open, may_write), (written, _writes)) = (mpsc::channel(), mpsc::channel());
        let (mut log, guard) = LogBuffer::start(Gate { may_write, written }).expect("a thread");
        let before = lost_lines();
        for _ in 0..100_000 {
            log.write_all(b"a line of a log that nobody takes\n").expect("it never fails");
        }
        drop(guard);
        assert!(lost_lines() > before);
    }
}
