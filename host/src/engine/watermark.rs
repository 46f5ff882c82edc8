//! The watermarks of a transform's inputs, merged from what its lanes say.
//!
//! **Invariant:** within a run no watermark falls, and none passes a lane that may still bring something
//! older, unless that lane is idle.

use crate::types::batch::Timestamp;
use crate::types::watermark::{END_OF_TIME, LaneTime};

/// The watermark of each input, as of the last step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputWatermarks {
    of_inputs: Vec<Timestamp>,
    is_idle: bool,
}

impl InputWatermarks {
    /// Those of a job that goes on in the same run; none where it begins in it.
    pub fn restored(
        mut of_inputs: Vec<Timestamp>,
        is_idle: bool,
        inputs: usize,
    ) -> InputWatermarks {
        // No watermark falls because a computation has one input more than before.
        let least = of_inputs.iter().copied().min().unwrap_or(0);
        of_inputs.resize(inputs, least);
        InputWatermarks { of_inputs, is_idle }
    }

    /// Those of so many inputs that are at their end.
    pub fn at_end(inputs: usize) -> InputWatermarks {
        InputWatermarks {
            of_inputs: vec![END_OF_TIME; inputs],
            is_idle: false,
        }
    }

    /// The watermark of each input.
    pub fn of_inputs(&self) -> &[Timestamp] {
        &self.of_inputs
    }

    /// Whether none of the lanes is expected to bring anything for now, though they are not all at
    /// their end.
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// What the inputs' watermarks become by what the lanes say, each with the input that it feeds:
    /// for each the least of its lanes, idle ones left out. An input of which all lanes are idle holds
    /// nobody back: it follows the least of the others. `None` when nothing changes.
    pub fn merge(
        &self,
        lanes: impl IntoIterator<Item = (u16, LaneTime)>,
    ) -> Option<InputWatermarks> {
        let mut merged = vec![MergedInput::default(); self.of_inputs.len()];
        for (input, time) in lanes {
            merged[usize::from(input)].add(time);
        }
        // With every lane idle or at its end it is not known that nothing will follow.
        let least_active = merged.iter().filter_map(|input| input.active).min();
        let next = self.of_inputs.iter().zip(&merged).map(|(before, input)| {
            let now = input.watermark().or(least_active);
            now.map_or(*before, |now| now.max(*before))
        });
        let next = InputWatermarks {
            of_inputs: next.collect(),
            is_idle: least_active.is_none() && merged.iter().any(|input| input.has_idle),
        };
        (next != *self).then_some(next)
    }
}

/// The lanes of one input.
#[derive(Debug, Clone, Copy, Default)]
struct MergedInput {
    /// The least watermark of those that are neither idle nor at their end.
    active: Option<Timestamp>,
    has_idle: bool,
}

impl MergedInput {
    fn add(&mut self, time: LaneTime) {
        if time.is_idle {
            self.has_idle = true;
        } else if time.watermark != END_OF_TIME {
            let least = self.active.unwrap_or(END_OF_TIME);
            self.active = Some(least.min(time.watermark));
        }
    }

    /// `None` while only idle lanes could bring anything.
    fn watermark(&self) -> Option<Timestamp> {
        match (self.active, self.has_idle) {
            (Some(watermark), _) => Some(watermark),
            (None, true) => None,
            (None, false) => Some(END_OF_TIME),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(watermark: Timestamp) -> LaneTime {
        LaneTime {
            watermark,
            is_idle: false,
        }
    }

    fn idle(watermark: Timestamp) -> LaneTime {
        LaneTime {
            watermark,
            is_idle: true,
        }
    }

    fn merged(before: &[Timestamp], lanes: &[(u16, LaneTime)]) -> Option<Vec<Timestamp>> {
        let before = InputWatermarks::restored(before.to_vec(), false, before.len());
        let next = before.merge(lanes.iter().copied());
        next.map(|next| next.of_inputs)
            .filter(|next| *next != before.of_inputs)
    }

    #[test]
    fn t1_an_inputs_watermark_is_the_least_of_its_lanes() {
        assert_eq!(merged(&[0], &[(0, at(7)), (0, at(5))]), Some(vec![5]));
        assert_eq!(merged(&[0, 0], &[(0, at(7)), (1, at(5))]), Some(vec![7, 5]));
        assert_eq!(merged(&[0], &[(0, at(7)), (0, at(0))]), None);
    }

    #[test]
    fn t1_an_input_that_is_new_lets_the_least_watermark_stand() {
        let restored = InputWatermarks::restored(vec![9, 7], false, 3);
        assert_eq!(restored.of_inputs(), [9, 7, 7]);
        let first = InputWatermarks::restored(Vec::new(), false, 2);
        assert_eq!(first.of_inputs(), [0, 0]);
    }

    #[test]
    fn t1_a_watermark_never_falls() {
        assert_eq!(merged(&[9], &[(0, at(5))]), None);
        assert_eq!(merged(&[9, 3], &[(0, at(5)), (1, at(4))]), Some(vec![9, 4]));
    }

    #[test]
    fn t1_an_idle_lane_holds_nobody_back_and_comes_back_at_the_merged_value() {
        assert_eq!(merged(&[3], &[(0, idle(3)), (0, at(8))]), Some(vec![8]));
        assert_eq!(merged(&[8], &[(0, at(4)), (0, at(9))]), None);
    }

    #[test]
    fn t1_lanes_that_are_all_idle_hold_the_watermark_where_it_is() {
        assert_eq!(merged(&[3], &[(0, idle(7)), (0, idle(8))]), None);
        assert_eq!(merged(&[3], &[(0, idle(7)), (0, at(END_OF_TIME))]), None);
    }

    #[test]
    fn t1_an_idle_input_follows_the_others_but_not_to_the_end() {
        let lanes = |other| [(0, idle(2)), (1, at(other))];
        assert_eq!(merged(&[2, 2], &lanes(6)), Some(vec![6, 6]));
        assert_eq!(
            merged(&[2, 2], &lanes(END_OF_TIME)),
            Some(vec![2, END_OF_TIME])
        );
    }

    #[test]
    fn a_job_of_which_all_lanes_are_idle_or_at_their_end_is_idle() {
        let before = InputWatermarks::restored(vec![3], false, 1);
        let next = before.merge([(0, idle(7)), (0, at(END_OF_TIME))]).unwrap();
        assert!(next.is_idle());
        let next = next.merge([(0, at(7)), (0, at(END_OF_TIME))]).unwrap();
        assert!(!next.is_idle());
        let next = next.merge([(0, at(END_OF_TIME))]).unwrap();
        assert!(!next.is_idle() && next.of_inputs() == [END_OF_TIME]);
    }

    #[test]
    fn t1_the_end_of_all_lanes_is_the_end_of_time() {
        let end = at(END_OF_TIME);
        assert_eq!(merged(&[5], &[(0, end), (0, end)]), Some(vec![END_OF_TIME]));
        assert_eq!(merged(&[5], &[(0, end), (0, at(6))]), Some(vec![6]));
    }
}
