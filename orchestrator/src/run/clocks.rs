//! The clocks of a run, as pure functions of time stamps.
//!
//! Nothing but the agent's own messages counts as progress: a console that
//! prints for ever resets no clock.

use std::time::{Duration, Instant};

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the start of QEMU to the agent's hello.
    pub boot: Duration,
    /// Longest silence of the agent after its hello.
    pub no_progress: Duration,
    /// Longest single phase after hello.
    pub phase: Duration,
    /// The whole run.
    pub total: Duration,
}

/// Under emulation a boot may take this many times longer.
pub const EMULATION_FACTOR: u32 = 4;

impl Default for Limits {
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(30),
            no_progress: Duration::from_secs(60),
            phase: Duration::from_secs(600),
            total: Duration::from_secs(900),
        }
    }
}

impl Limits {
    /// The same limits for an emulated guest.
    #[must_use]
    pub fn emulated(mut self) -> Self {
        self.boot *= EMULATION_FACTOR;
        self
    }
}

/// Which clock ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// No hello in time.
    Boot,
    /// The agent was silent.
    NoProgress,
    /// A phase did not end.
    Phase,
    /// The run did not end.
    Total,
}

/// The clocks of one run and its phases so far.
#[derive(Debug)]
pub struct Clocks {
    limits: Limits,
    started: Instant,
    greeted: Option<Instant>,
    heard: Instant,
    phase: String,
    phase_started: Instant,
    ended: Vec<(String, u64)>,
}

impl Clocks {
    /// Clocks of a QEMU that is about to be started, in its first phase.
    pub fn start(limits: Limits, phase: &str, now: Instant) -> Self {
        Self {
            limits,
            started: now,
            greeted: None,
            heard: now,
            phase: phase.into(),
            phase_started: now,
            ended: Vec::new(),
        }
    }

    /// The agent said hello.
    pub fn greeted(&mut self, now: Instant) {
        self.greeted = Some(now);
        self.heard(now);
    }

    /// The agent said anything.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When the agent was last heard.
    pub fn last_heard(&self) -> Instant {
        self.heard
    }

    /// A phase begins, the one before it ends.
    pub fn enter(&mut self, phase: &str, now: Instant) {
        let ended = std::mem::replace(&mut self.phase, phase.into());
        self.ended.push((ended, millis(now - self.phase_started)));
        self.phase_started = now;
    }

    /// The phase now.
    pub fn phase(&self) -> &str {
        &self.phase
    }

    /// Start of QEMU to hello, milliseconds.
    pub fn hello_ms(&self) -> Option<u64> {
        self.greeted.map(|at| millis(at - self.started))
    }

    /// Since the start of QEMU, milliseconds.
    pub fn wall_ms(&self, now: Instant) -> u64 {
        millis(now - self.started)
    }

    /// All phases with their milliseconds, the last one ending now.
    pub fn phases(&self, now: Instant) -> Vec<(String, u64)> {
        let mut phases = self.ended.clone();
        phases.push((self.phase.clone(), millis(now - self.phase_started)));
        phases
    }

    /// The next moment at which a clock runs out, and which.
    pub fn next(&self) -> (Instant, Clock) {
        let total = (self.started + self.limits.total, Clock::Total);
        let other = if self.greeted.is_none() {
            (self.started + self.limits.boot, Clock::Boot)
        } else {
            earlier(
                (self.heard + self.limits.no_progress, Clock::NoProgress),
                (self.phase_started + self.limits.phase, Clock::Phase),
            )
        };
        earlier(other, total)
    }

    /// What to tell about a clock that ran out.
    pub fn describe(&self, clock: Clock) -> String {
        let seconds = |limit: Duration| limit.as_secs_f64();
        match clock {
            Clock::Boot => format!(
                "no hello from the agent within {} s",
                seconds(self.limits.boot)
            ),
            Clock::NoProgress => format!(
                "nothing heard from the agent for {} s",
                seconds(self.limits.no_progress)
            ),
            Clock::Phase => format!("the phase took more than {} s", seconds(self.limits.phase)),
            Clock::Total => format!("the run took more than {} s", seconds(self.limits.total)),
        }
    }
}

fn earlier(one: (Instant, Clock), other: (Instant, Clock)) -> (Instant, Clock) {
    if other.0 < one.0 { other } else { one }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            boot: Duration::from_secs(10),
            no_progress: Duration::from_secs(5),
            phase: Duration::from_secs(20),
            total: Duration::from_secs(40),
        }
    }

    #[test]
    fn before_hello_only_boot_and_total_count() {
        let t0 = Instant::now();
        let at = |s: u64| t0 + Duration::from_secs(s);
        let clocks = Clocks::start(limits(), "boot", t0);
        assert_eq!(clocks.next(), (at(10), Clock::Boot));
        let long = Limits {
            boot: Duration::from_secs(100),
            ..limits()
        };
        assert_eq!(
            Clocks::start(long, "boot", t0).next(),
            (at(40), Clock::Total)
        );
    }

    #[test]
    fn progress_pushes_silence_away_but_neither_phase_nor_total() {
        let t0 = Instant::now();
        let at = |s: u64| t0 + Duration::from_secs(s);
        let mut clocks = Clocks::start(limits(), "boot", t0);
        clocks.greeted(at(3));
        clocks.enter("measure", at(4));
        assert_eq!(clocks.next(), (at(8), Clock::NoProgress));
        clocks.heard(at(7));
        assert_eq!(clocks.next(), (at(12), Clock::NoProgress));
        for second in 8..24 {
            clocks.heard(at(second));
        }
        assert_eq!(clocks.next(), (at(24), Clock::Phase));
        clocks.enter("undo", at(23));
        clocks.heard(at(39));
        assert_eq!(clocks.next(), (at(40), Clock::Total));
        assert_eq!(
            clocks.phases(at(39)),
            [
                ("boot".to_string(), 4000),
                ("measure".to_string(), 19000),
                ("undo".to_string(), 16000)
            ]
        );
        assert_eq!(clocks.hello_ms(), Some(3000));
    }

    #[test]
    fn emulation_stretches_the_boot_alone() {
        assert_eq!(limits().emulated().boot, Duration::from_secs(40));
        assert_eq!(limits().emulated().total, limits().total);
    }
}
