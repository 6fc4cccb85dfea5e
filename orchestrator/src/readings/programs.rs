//! Benchmarks whose output is known: `hackbench` and `cyclictest` of rt-tests,
//! `schbench`, `stress-ng` and `perf bench`. All they tell is how long something
//! took or how much was done in a time, so all of it is timing.

use topolab_protocol::sample::{Better, MetricKind, Sample};

use super::{Problem, labelled, sample};

const US: f64 = 1e3;
const S: f64 = 1e9;

fn duration(metric: &str, ns: f64) -> Sample {
    sample(metric, ns, MetricKind::Duration, "ns", Better::Lower)
}

fn rate(metric: &str, value: f64, unit: &str) -> Sample {
    sample(metric, value, MetricKind::Rate, unit, Better::Higher)
}

/// The number that a text begins with.
fn number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c)))
        .unwrap_or(text.len());
    text[..end]
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
}

/// The number behind `name` in a line.
fn after(line: &str, name: &str) -> Option<f64> {
    number(line.split_once(name)?.1)
}

fn or_other(
    samples: Vec<Sample>,
    program: &'static str,
    lacks: &'static str,
) -> Result<Vec<Sample>, Problem> {
    if samples.is_empty() {
        Err(Problem::OtherProgram { program, lacks })
    } else {
        Ok(samples)
    }
}

/// `Time: 0.084`, in seconds.
pub fn hackbench(output: &str) -> Result<Vec<Sample>, Problem> {
    let times = output.lines().filter_map(|line| line.strip_prefix("Time:"));
    let samples = times
        .filter_map(number)
        .map(|seconds| duration("hackbench_time", seconds * S))
        .collect();
    or_other(samples, "hackbench", "no line `Time: …`")
}

/// `T: 0 ( 9848) P: 0 I:1000 C: 50 Min: 63 Act: 63 Avg: 73 Max: 109`, in
/// microseconds, a line for each thread; with `--quiet` once at the end, else
/// again and again, so the last one counts.
pub fn cyclictest(output: &str) -> Result<Vec<Sample>, Problem> {
    let mut threads = std::collections::BTreeMap::new();
    for line in output.lines() {
        let Some(rest) = line.trim_start().strip_prefix("T:") else {
            continue;
        };
        let values = (
            number(rest),
            after(rest, "Min:"),
            after(rest, "Avg:"),
            after(rest, "Max:"),
        );
        if let (Some(thread), Some(min), Some(avg), Some(max)) = values {
            threads.insert(format!("{thread:.0}"), [min, avg, max]);
        }
    }
    let mut samples = Vec::new();
    for (thread, values) in &threads {
        let names = ["cyclictest_min", "cyclictest_avg", "cyclictest_max"];
        for (name, us) in names.into_iter().zip(values) {
            samples.push(labelled(duration(name, us * US), "thread", thread));
        }
    }
    or_other(samples, "cyclictest", "no line `T: … Min: … Avg: … Max: …`")
}

/// Sections `Wakeup Latencies percentiles (usec) …` and `Request Latencies …` with
/// lines `* 99.0th: 13`, and `average rps: …`. Each section may come several
/// times; the last one is about the whole run.
pub fn schbench(output: &str) -> Result<Vec<Sample>, Problem> {
    let mut metric = None;
    let mut found = std::collections::BTreeMap::new();
    for line in output.lines() {
        let text = line.trim_start().trim_start_matches("* ");
        if let Some((what, _)) = text.split_once(" percentiles (") {
            metric = match what {
                "Wakeup Latencies" | "Latency" => Some("schbench_wakeup"),
                "Request Latencies" => Some("schbench_request"),
                _ => None,
            };
        } else if let (Some(metric), Some((percentile, rest))) = (metric, text.split_once("th:")) {
            if let Some(us) = number(rest) {
                found.insert((metric, percentile.to_string()), us);
            }
        } else if let Some(rps) = text.strip_prefix("average rps:").and_then(number) {
            found.insert(("schbench_rps", String::new()), rps);
        }
    }
    let samples = found
        .into_iter()
        .map(|((metric, percentile), value)| {
            if percentile.is_empty() {
                rate(metric, value, "requests/s")
            } else {
                labelled(duration(metric, value * US), "percentile", &percentile)
            }
        })
        .collect();
    or_other(samples, "schbench", "no section `… percentiles (usec)`")
}

/// The YAML of `--yaml`: one entry for each stressor below `metrics:`. Read by
/// lines, because the same stream may hold remarks around it.
pub fn stress_ng(output: &str) -> Result<Vec<Sample>, Problem> {
    let mut stressor = None;
    let mut samples = Vec::new();
    for line in output.lines() {
        let Some((key, value)) = line.trim_start().split_once(':') else {
            continue;
        };
        let (metric, name) = match key.trim_start_matches("- ") {
            "stressor" => {
                stressor = Some(value.trim().to_string());
                continue;
            }
            "bogo-ops-per-second-real-time" => ("stress_ng_rate", &stressor),
            "bogo-ops-per-second-usr-sys-time" => ("stress_ng_rate_cpu_time", &stressor),
            _ => continue,
        };
        if let (Some(name), Some(value)) = (name, number(value)) {
            samples.push(labelled(rate(metric, value, "ops/s"), "stressor", name));
        }
    }
    or_other(
        samples,
        "stress-ng",
        "no `metrics:` of `--yaml /dev/stdout --metrics`",
    )
}

/// Lines with `Total time: … [sec]`, `… usecs/op`, `… ops/sec`, `… operations/sec`
/// and `… GB/sec`; with several benchmarks, each begins with
/// `# Running 'group/name' benchmark:`.
pub fn perf_bench(output: &str) -> Result<Vec<Sample>, Problem> {
    let mut benchmark = String::from("all");
    let mut samples = Vec::new();
    for line in output.lines() {
        let text = line.trim();
        let named = |part: &str| part.split('\'').nth(1).map(String::from);
        if text.starts_with("# Running '") || text.starts_with("# function '") {
            benchmark = named(text).unwrap_or(benchmark);
            continue;
        }
        let one = if let Some(seconds) = after(text, "Total time:") {
            duration("perf_bench_time", seconds * S)
        } else if let Some(us) = number(text).filter(|_| text.ends_with("usecs/op")) {
            duration("perf_bench_op", us * US)
        } else if let Some(ops) = number(text).filter(|_| text.ends_with(" ops/sec")) {
            rate("perf_bench_rate", ops, "ops/s")
        } else if let Some(ops) = after(text, "Averaged ") {
            rate("perf_bench_rate", ops, "ops/s")
        } else if let Some(gb) = number(text).filter(|_| text.ends_with("GB/sec")) {
            rate("perf_bench_bandwidth", gb, "GB/s")
        } else {
            continue;
        };
        samples.push(labelled(one, "benchmark", &benchmark));
    }
    or_other(samples, "perf bench", "no time, rate or bandwidth")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(samples: Result<Vec<Sample>, Problem>) -> Vec<String> {
        let line = |s: &Sample| {
            let label: Vec<_> = s.labels.iter().map(|(_, value)| value).collect();
            format!("{} {} {} {}", s.metric, label.join(","), s.value, s.unit)
        };
        samples.unwrap().iter().map(line).collect()
    }

    #[test]
    fn schbench_tells_the_whole_run_last() {
        let output = "\
Wakeup Latencies percentiles (usec) runtime 10 (s) (100 total samples)
\t  50.0th: 6          (9 samples)
\t* 99.0th: 13         (9 samples)
\t  min=1, max=1200
Request Latencies percentiles (usec) runtime 10 (s) (90 total samples)
\t  50.0th: 4000       (9 samples)
RPS percentiles (requests) runtime 10 (s) (11 total samples)
\t  50.0th: 999        (9 samples)
average rps: 1235.60
Wakeup Latencies percentiles (usec) runtime 20 (s) (200 total samples)
\t  50.0th: 8          (9 samples)
\t* 99.0th: 14         (9 samples)
";
        assert_eq!(
            shown(schbench(output)),
            [
                "schbench_request 50.0 4000000 ns",
                "schbench_rps  1235.6 requests/s",
                "schbench_wakeup 50.0 8000 ns",
                "schbench_wakeup 99.0 14000 ns",
            ]
        );
    }

    #[test]
    fn perf_bench_has_several_forms() {
        let output = "\
# Running 'sched/pipe' benchmark:
# Executed 2000 pipe operations between two processes

     Total time: 0.030 [sec]

      15.000000 usecs/op
          64789 ops/sec
# Running 'futex/hash' benchmark:
[thread  0] futexes: 0x55bd94137400 ... 0x55bd941383fc [ 1309696 ops/sec ]
Averaged 1209856 operations/sec (+- 8.25%), total secs = 1
# function 'x86-64-movsb' (movsb-based memcpy() in arch/x86/lib/memcpy_64.S)
      31.5 GB/sec
";
        assert_eq!(
            shown(perf_bench(output)),
            [
                "perf_bench_time sched/pipe 30000000 ns",
                "perf_bench_op sched/pipe 15000 ns",
                "perf_bench_rate sched/pipe 64789 ops/s",
                "perf_bench_rate futex/hash 1209856 ops/s",
                "perf_bench_bandwidth x86-64-movsb 31.5 GB/s",
            ]
        );
    }

    #[test]
    fn cyclictest_keeps_the_last_line_of_each_thread() {
        let output = "# /dev/cpu_dma_latency set to 0us\n\
            T: 0 ( 98) P: 0 I:1000 C:     10 Min:     63 Act:   63 Avg:   70 Max:     80\n\
            T: 0 ( 98) P: 0 I:1000 C:     50 Min:     61 Act:   63 Avg:   73 Max:     109\n";
        assert_eq!(
            shown(cyclictest(output)),
            [
                "cyclictest_min 0 61000 ns",
                "cyclictest_avg 0 73000 ns",
                "cyclictest_max 0 109000 ns",
            ]
        );
    }

    #[test]
    fn other_output_is_refused() {
        for read in [hackbench, cyclictest, schbench, stress_ng, perf_bench] {
            assert!(read("command not found\n").is_err());
        }
    }
}
