//! What is to be done about each task, from what is known of it. Pure.

/// A block is submitted at most so often; then its open runs are the lab's failure.
pub const SUBMISSIONS: u32 = 3;

/// What is known of one block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Every run of it ended, or is not to be tried.
    pub ended: bool,
    /// A task for it waits or runs.
    pub queued: bool,
    /// It was seen neither waiting nor running when last looked, too.
    pub was_absent: bool,
    /// How often it was submitted.
    pub submissions: u32,
    /// How its last task ended, when that is still known.
    pub fate: Option<String>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it is done.
    Done,
    /// Look again later.
    Wait,
    /// Submit it again.
    Submit,
    /// Somebody cancelled it: that is respected.
    Leave,
    /// It was lost too often: its open runs get an outcome.
    Record {
        /// How it was lost.
        reason: String,
    },
}

/// Decides about one block. A task that is gone for the first time is given until
/// the next look: its last files may still be on their way over NFS.
pub fn decide(known: &Known) -> Step {
    if known.ended {
        return Step::Done;
    }
    if known.queued || (known.submissions > 0 && !known.was_absent) {
        return Step::Wait;
    }
    let fate = known.fate.as_deref().unwrap_or_default();
    if fate.starts_with("CANCELLED") {
        return Step::Leave;
    }
    if known.submissions < SUBMISSIONS {
        return Step::Submit;
    }
    let how = if fate.is_empty() {
        "how its last task ended is not known any more"
    } else {
        fate
    };
    Step::Record {
        reason: format!("lost {} times: {how}", known.submissions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(submissions: u32, fate: Option<&str>) -> Known {
        Known {
            was_absent: true,
            submissions,
            fate: fate.map(String::from),
            ..Known::default()
        }
    }

    #[test]
    fn what_is_lost_is_submitted_a_bounded_number_of_times() {
        assert_eq!(decide(&lost(0, None)), Step::Submit);
        assert_eq!(decide(&lost(2, Some("NODE_FAIL on n1"))), Step::Submit);
        let Step::Record { reason } = decide(&lost(3, Some("OUT_OF_MEMORY on n1"))) else {
            panic!("it is not submitted for ever");
        };
        assert_eq!(reason, "lost 3 times: OUT_OF_MEMORY on n1");
        assert!(matches!(decide(&lost(3, None)), Step::Record { .. }));
    }

    #[test]
    fn what_is_there_or_on_its_way_is_left_alone() {
        let ended = Known {
            ended: true,
            ..lost(3, Some("TIMEOUT"))
        };
        assert_eq!(decide(&ended), Step::Done);
        let queued = Known {
            queued: true,
            ..lost(3, None)
        };
        assert_eq!(decide(&queued), Step::Wait);
        let just_gone = Known {
            was_absent: false,
            ..lost(1, None)
        };
        assert_eq!(decide(&just_gone), Step::Wait);
        assert_eq!(decide(&lost(1, Some("CANCELLED"))), Step::Leave);
    }
}
