//! A list of steps, each named when it begins and timed when it ends, with a summary.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The steps done so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration)>,
    failed: Option<&'static str>,
}

impl Steps {
    /// Does one step.
    ///
    /// # Errors
    ///
    /// The step's own, with its name.
    pub(crate) fn run<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        eprintln!("\n== {name}");
        let (result, elapsed) = timed(work);
        self.done.push((name, elapsed));
        if result.is_ok() {
            eprintln!("== {name}: done in {}", seconds(elapsed));
        } else {
            self.failed = Some(name);
        }
        result.with_context(|| format!("step `{name}` failed after {}", seconds(elapsed)))
    }

    /// One line for each step that was begun, and the sum.
    pub(crate) fn summary(&self) -> String {
        let mut lines = String::new();
        for (name, elapsed) in &self.done {
            let mark = if self.failed == Some(*name) {
                "FAILED"
            } else {
                "ok"
            };
            lines += &format!("  {name:<24}{:>9}  {mark}\n", seconds(*elapsed));
        }
        let total = self.done.iter().map(|(_, elapsed)| *elapsed).sum();
        lines += &format!("  {:<24}{:>9}\n", "together", seconds(total));
        lines
    }
}

/// Does the work and says how long it took.
#[expect(
    clippy::disallowed_methods,
    reason = "a developer's tool tells its user how long a command took; nothing is decided by it"
)]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

pub(crate) fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failed_step_is_named_in_its_error_and_in_the_summary() {
        let mut steps = Steps::default();
        steps.run("format", || Ok(())).unwrap();
        let error = steps.run("lint", || -> Result<()> {
            bail!("exit status: 1 from: cargo clippy")
        });

        let error = format!("{:#}", error.unwrap_err());
        assert!(error.starts_with("step `lint` failed"), "{error}");
        assert!(error.ends_with("from: cargo clippy"), "{error}");
        let summary = steps.summary();
        let line = |name: &str| {
            summary
                .lines()
                .find(|line| line.contains(name))
                .unwrap()
                .to_owned()
        };
        assert!(line("format").ends_with("ok"), "{summary}");
        assert!(line("lint").ends_with("FAILED"), "{summary}");
    }
}
