//! Functions of this process in place of components, to measure what the sandbox costs: everything
//! else (columns, states, epochs, storage) stays as it is. The feature `native-computations` is for
//! `bench/`; the program never puts a function anywhere.
//!
//! A function is trusted as no guest is. It has no limits, its effects are not checked, no cut is
//! audited, and a failure is a verdict on no item: it ends the job.

use std::sync::Arc;

use crate::guest::computation::Call;
use crate::guest::error::{CallReport, GuestError};
use crate::types::batch::{Batch, Effects};

/// What a component's `process` does, as a function: the same effects for the same batch, however
/// batches are cut. Fails with a reason.
pub type NativeFunction = Arc<dyn Fn(&Batch) -> Result<Effects, String> + Send + Sync>;

/// Runs one batch.
pub(super) fn call(
    function: &NativeFunction,
    computation: &str,
    batch: &Batch,
) -> Result<Call, GuestError> {
    match function(batch) {
        Ok(effects) => Ok(Call {
            effects,
            parts: 1,
            ..Call::default()
        }),
        Err(reason) => Err(GuestError::Failure {
            computation: computation.to_owned(),
            reason,
            report: Box::new(CallReport::default()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::batch::OutputColumns;

    #[test]
    fn a_function_is_called_with_the_batch_and_its_effects_stay_as_they_are() {
        let echo: NativeFunction = Arc::new(|batch| {
            Ok(Effects {
                outputs: OutputColumns {
                    keys: batch.keys.clone(),
                    ..OutputColumns::default()
                },
                ..Effects::default()
            })
        });
        let batch = Batch {
            keys: [&b"a"[..], b"b"].into_iter().collect(),
            ..Batch::default()
        };
        let answer = call(&echo, "echo", &batch).expect("it passes");
        assert_eq!(answer.effects.outputs.keys, batch.keys);
        assert_eq!(answer.parts, 1);
    }

    #[test]
    fn a_failure_is_a_verdict_on_no_item() {
        let fails: NativeFunction = Arc::new(|_| Err("no event".to_owned()));
        let error = call(&fails, "parse", &Batch::default()).expect_err("it fails");
        assert_eq!(error.item(), None);
        assert!(!error.is_verdict());
        let text = error.to_string();
        assert!(text.starts_with("computation parse: "), "{text}");
        assert!(text.contains("no event"), "{text}");
    }
}
