//! Whether results depend on how a sequence of messages and watermark steps is cut into batches.

use super::bench::TestBench;
use super::failure::TestFailure;
use crate::computation::Computation;

/// The cuts that are compared with the whole.
const BATCH_SIZES: [usize; 5] = [1, 2, 3, 7, 64];

impl<C> TestBench<C> {
    /// Plays a scenario, messages and steps of time as it likes, under many cuts of its batches (at
    /// most 1, 2, 3, 7, 64 and all messages or timers in a call) and panics unless outputs, states,
    /// timers, late messages, logs and failures are the same under all. Returns the bench after the
    /// scenario.
    ///
    /// # Panics
    ///
    /// When results depend on the cut, or the computation refuses its parameters.
    pub fn assert_cuts_agree<K>(
        parameters: &str,
        scenario: impl Fn(&mut TestBench<C>) -> Result<(), TestFailure>,
    ) -> TestBench<C>
    where
        C: Computation<K>,
    {
        let play = |batch_size| {
            let mut bench = TestBench::<C>::new(parameters)
                .expect("the computation takes its parameters")
                .with_batch_size(batch_size);
            let outcome = scenario(&mut bench);
            (bench, outcome)
        };
        let (whole, outcome) = play(usize::MAX);
        for batch_size in BATCH_SIZES {
            let (cut, cut_outcome) = play(batch_size);
            let sizes = format!("in batches of {batch_size} and of all");
            assert_eq!(cut_outcome, outcome, "failures differ {sizes}");
            assert_eq!(cut.outputs, whole.outputs, "outputs differ {sizes}");
            assert_eq!(cut.states, whole.states, "states differ {sizes}");
            assert_eq!(cut.timers, whole.timers, "timers differ {sizes}");
            assert_eq!(cut.late, whole.late, "late messages differ {sizes}");
            assert_eq!(cut.logs, whole.logs, "logs differ {sizes}");
        }
        whole
    }
}
