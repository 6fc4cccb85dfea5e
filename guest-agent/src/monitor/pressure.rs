//! Pressure stall information (`Documentation/accounting/psi.rst`).

use std::path::{Path, PathBuf};

use topolab_protocol::sample::{Better, MetricKind};

use super::{Monitor, MonitorError, Seen, count};

/// The monitor: stall times of chosen resources.
pub struct Pressure {
    root: PathBuf,
    before: Vec<(String, Vec<(String, u64)>)>,
}

/// Reads the chosen resources for the first time.
pub fn start(root: &Path, names: &[String]) -> Result<Pressure, MonitorError> {
    let before = names
        .iter()
        .map(|name| Ok((name.clone(), totals(root, name)?)))
        .collect::<Result<_, MonitorError>>()?;
    Ok(Pressure {
        root: root.to_path_buf(),
        before,
    })
}

fn totals(root: &Path, name: &str) -> Result<Vec<(String, u64)>, MonitorError> {
    let text = super::read(root, &format!("proc/pressure/{name}"))?;
    Ok(parse(&text))
}

impl Monitor for Pressure {
    fn finish(self: Box<Self>) -> Result<Seen, MonitorError> {
        let mut seen = Seen::default();
        for (name, before) in &self.before {
            let after = totals(&self.root, name)?;
            for ((kind, before), (_, after)) in before.iter().zip(&after) {
                let us = after.saturating_sub(*before);
                let mut sample = count(format!("pressure_{name}_{kind}"), us as f64 * 1000.0);
                sample.kind = MetricKind::Duration;
                sample.unit = "ns".into();
                sample.better = Better::Lower;
                seen.samples.push(sample);
            }
        }
        Ok(seen)
    }
}

/// Microseconds stalled since boot: `some avg10=… total=N` and `full …`.
fn parse(text: &str) -> Vec<(String, u64)> {
    text.lines()
        .filter_map(|line| {
            let (kind, rest) = line.split_once(' ')?;
            let (_, total) = rest.rsplit_once("total=")?;
            Some((kind.to_string(), total.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=45\n";
        assert_eq!(parse(text), [("some".into(), 123), ("full".into(), 45)]);
    }
}
