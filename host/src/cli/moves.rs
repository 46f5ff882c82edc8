//! How a move to another number of partitions is shown: a line now and then, and one at its end.

use std::time::Duration;

use indicatif::HumanCount;

use crate::clock::Clock;
use crate::controller::layout_mover::LayoutMove;
use crate::telemetry::LogOutput;

/// How often a line is printed while a move goes on.
const LINE_PERIOD: Duration = Duration::from_secs(2);

/// Shows the moves of one start.
pub struct MoveView<'a> {
    logs: &'a LogOutput,
    clock: &'a dyn Clock,
    last_line: Duration,
    /// What was seen last and is not printed yet.
    unprinted: Option<LayoutMove>,
}

impl<'a> MoveView<'a> {
    /// Prints nothing before something moves.
    pub fn new(logs: &'a LogOutput, clock: &'a dyn Clock) -> MoveView<'a> {
        MoveView {
            logs,
            clock,
            last_line: clock.elapsed(),
            unprinted: None,
        }
    }

    /// Something has been moved.
    pub fn moved(&mut self, now: &LayoutMove) {
        let is_same_step = |last: &LayoutMove| {
            last.computation == now.computation
                && (last.progress.swept > 0) == (now.progress.swept > 0)
        };
        if self
            .unprinted
            .as_ref()
            .is_some_and(|last| !is_same_step(last))
        {
            self.print();
        }
        self.unprinted = Some(now.clone());
        if self.clock.elapsed() >= self.last_line + LINE_PERIOD {
            self.print();
        }
    }

    /// All moves are done.
    pub fn finish(mut self) {
        self.print();
    }

    fn print(&mut self) {
        if let Some(shown) = self.unprinted.take() {
            self.last_line = self.clock.elapsed();
            self.logs.print_line(&describe(&shown));
        }
    }
}

fn describe(shown: &LayoutMove) -> String {
    let LayoutMove {
        computation,
        from,
        to,
        progress,
    } = shown;
    if progress.swept > 0 {
        let swept = HumanCount(progress.swept);
        return format!(
            "computation {computation}: {swept} rows of partitions that it had before removed"
        );
    }
    let timers = match progress.timers {
        0 => String::new(),
        count => format!(", {} timers", HumanCount(count)),
    };
    format!(
        "computation {computation}: {} states{timers} and {} waiting messages moved from {from} to {to} partitions",
        HumanCount(progress.states),
        HumanCount(progress.messages),
    )
}
