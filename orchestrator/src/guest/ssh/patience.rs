//! How long somebody waits, and whether they were told to stop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A moment after which nothing is waited for, and a flag that ends all waiting.
#[derive(Debug, Clone)]
pub struct Patience {
    deadline: Instant,
    stopped: Arc<AtomicBool>,
}

impl Patience {
    /// From now on for so long.
    pub fn of(limit: Duration) -> Self {
        Self {
            deadline: Instant::now() + limit,
            stopped: Arc::new(AtomicBool::new(false)),
        }
    }

    /// What is left of it; nothing after a stop.
    pub fn left(&self) -> Duration {
        if self.is_stopped() {
            return Duration::ZERO;
        }
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Ends every wait of this and its clones.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
