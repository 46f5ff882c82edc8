//! How many instances may live at once: the pooling allocator refuses what is over its totals, so
//! calls wait here instead.
//!
//! Kept instances (policy `reuse`) may hold at most half of the slots, so that fresh calls, which
//! give theirs back within their deadline, always get one in the end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The slots of one runtime.
#[derive(Debug)]
pub(super) struct InstanceSlots {
    limit: usize,
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    kept: usize,
}

/// The right to hold one instance.
#[derive(Debug)]
pub(super) struct InstanceSlot {
    slots: Arc<InstanceSlots>,
    kept: bool,
}

impl InstanceSlots {
    /// `limit` slots, at least one.
    pub(super) fn new(limit: usize) -> Arc<InstanceSlots> {
        Arc::new(InstanceSlots {
            limit: limit.max(1),
            taken: Mutex::default(),
            freed: Condvar::new(),
        })
    }

    /// Waits for a slot for one call.
    pub(super) fn take(self: &Arc<InstanceSlots>) -> InstanceSlot {
        let mut taken = self
            .freed
            .wait_while(self.lock(), |taken| taken.all >= self.limit)
            .unwrap_or_else(PoisonError::into_inner);
        taken.all += 1;
        InstanceSlot {
            slots: Arc::clone(self),
            kept: false,
        }
    }

    /// Turns a call's slot into one that may be kept, if fewer than half of all are.
    pub(super) fn keep(&self, slot: &mut InstanceSlot) -> bool {
        let mut taken = self.lock();
        if slot.kept || taken.kept >= self.limit / 2 {
            return slot.kept;
        }
        taken.kept += 1;
        slot.kept = true;
        true
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InstanceSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.all -= 1;
        taken.kept -= usize::from(self.kept);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_instances_leave_half_of_the_slots() {
        let slots = InstanceSlots::new(2);
        let (mut first, mut second) = (slots.take(), slots.take());
        assert!(slots.keep(&mut first));
        assert!(!slots.keep(&mut second));
        drop(first);
        assert!(slots.keep(&mut second));
    }

    #[test]
    fn a_call_waits_until_a_slot_is_free() {
        let slots = InstanceSlots::new(1);
        let slot = slots.take();
        let waiting = std::thread::spawn({
            let slots = Arc::clone(&slots);
            move || drop(slots.take())
        });
        drop(slot);
        waiting.join().expect("the waiting thread gets its slot");
        assert_eq!(slots.lock().all, 0);
    }
}
