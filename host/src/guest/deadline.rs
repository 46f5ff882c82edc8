//! The safety net against guests that run too long in wall-clock time: wasmtime's epoch
//! interruption, called deadline here.
//!
//! A thread of its own raises the engine's count once in a tick while calls run, so no guest and no
//! busy runtime can keep it from doing so. Time is counted in ticks: a call may run somewhat longer
//! than its deadline, never shorter.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How exact deadlines are.
const TICK: Duration = Duration::from_millis(10);

/// The thread that raises deadlines; ends when dropped.
#[derive(Debug)]
pub(super) struct DeadlineThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running_calls: usize,
    stopped: bool,
}

/// While it lives, ticks are counted.
#[derive(Debug)]
pub(super) struct RunningCall<'a> {
    shared: &'a Shared,
}

impl DeadlineThread {
    /// Starts the thread for the engine.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub(super) fn start(engine: wasmtime::Engine) -> std::io::Result<DeadlineThread> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("guest-deadline".to_owned())
            .spawn(move || for_thread.tick_while_calls_run(&engine))?;
        Ok(DeadlineThread {
            shared,
            thread: Some(thread),
        })
    }

    /// Says that a call runs. To be held until it has returned.
    pub(super) fn enter(&self) -> RunningCall<'_> {
        let mut state = self.shared.lock();
        state.running_calls += 1;
        if state.running_calls == 1 {
            self.shared.changed.notify_one();
        }
        RunningCall {
            shared: &self.shared,
        }
    }
}

/// How many ticks a call with this deadline may see. The tick under way when it starts does not
/// count.
pub(super) fn ticks(deadline: Duration) -> u64 {
    let ticks = deadline.as_nanos().div_ceil(TICK.as_nanos());
    // Half of the range: the engine adds its present count.
    u64::try_from(ticks).unwrap_or(u64::MAX).min(u64::MAX / 2) + 1
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick_while_calls_run(&self, engine: &wasmtime::Engine) {
        let mut state = self.lock();
        loop {
            state = self
                .changed
                .wait_while(state, |state| state.running_calls == 0 && !state.stopped)
                .unwrap_or_else(PoisonError::into_inner);
            state = self
                .changed
                .wait_timeout_while(state, TICK, |state| !state.stopped)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if state.stopped {
                return;
            }
            engine.increment_epoch();
        }
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.shared.lock().running_calls -= 1;
    }
}

impl Drop for DeadlineThread {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread would have been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_rounded_up() {
        assert_eq!(ticks(Duration::ZERO), 1);
        assert_eq!(ticks(Duration::from_millis(10)), 2);
        assert_eq!(ticks(Duration::from_millis(11)), 3);
        assert_eq!(ticks(Duration::MAX), u64::MAX / 2 + 1);
    }
}
