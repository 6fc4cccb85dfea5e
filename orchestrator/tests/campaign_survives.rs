//! Campaigns that are killed, interrupted or run out of disk, and gone on with.
//! A fake QEMU plays the guests; everything else is the program as it is typed.

mod faked;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use faked::Place;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Runs that are measured, runs that are tried again, and a cell that is given up.
const EXPERIMENT: &str = "\
name: survivor
kernels: [fake]
topologies: [one-core]
cmdlines: {works: fake=works, breaks: fake=panic, flaky: fake=first-try-crashes}
workloads: {run: {command: {argv: [\"true\"]}}}
rounds: 4
warmup: 1
";

impl Place {
    /// A campaign into `results`, from its beginning or gone on with.
    fn campaign(&self, results: &Path) -> Command {
        let results = results.to_str().unwrap();
        if Path::new(results).join("campaign.json").exists() {
            return self.topolab(&["run", "--resume", results, "--accel", "tcg"]);
        }
        let begin = ["run", "faked", "--seed", "7", "--accel", "tcg"];
        let mut command = self.topolab(&begin);
        command.args(["--output", results]);
        command
    }

    fn start(&self, results: &Path) -> Child {
        let mut command = self.campaign(results);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn finish(&self, results: &Path) -> Output {
        let output = self.campaign(results).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The cell that breaks leaves the comparison undecided or without a baseline.
        assert!(matches!(output.status.code(), Some(0 | 6)), "{said}");
        output
    }
}

/// What may differ between two executions of the same plan: times, what they make
/// of trust in them, and what was found in the cache.
fn timeless(value: &mut Value) {
    const TIMES: [&str; 8] = [
        "reasons",
        "started",
        "wall_ms",
        "hello_ms",
        "run_delay_ms",
        "cpu_pressure",
        "seconds",
        "cached",
    ];
    match value {
        Value::Object(map) => {
            if let Some(phases) = map.get_mut("phases").and_then(Value::as_array_mut) {
                for phase in phases {
                    phase[1] = Value::Null;
                }
            }
            for (name, inner) in map {
                if TIMES.contains(&name.as_str()) {
                    *inner = Value::Null;
                } else {
                    timeless(inner);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(timeless),
        _ => {}
    }
}

/// Every file of a results folder by its name there, without times. Arguments of
/// QEMU name sockets by number and the folder by path.
fn contents(results: &Path) -> BTreeMap<String, String> {
    walkdir::WalkDir::new(results)
        .into_iter()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| {
            let name = entry.path().strip_prefix(results).unwrap();
            let bytes = fs::read(entry.path()).unwrap();
            let text = if name.extension().is_some_and(|e| e == "json") {
                let mut json: Value = serde_json::from_slice(&bytes).unwrap();
                timeless(&mut json);
                json.to_string()
            } else if name.ends_with("qemu.args") {
                String::new()
            } else {
                String::from_utf8_lossy(&bytes).into_owned()
            };
            (name.to_string_lossy().into_owned(), text)
        })
        .collect()
}

fn assert_same(uninterrupted: &Path, other: &Path) {
    let (expected, found) = (contents(uninterrupted), contents(other));
    let only_in = |some: &BTreeMap<String, String>, others: &BTreeMap<String, String>| {
        let only = some.iter().filter(|(name, _)| !others.contains_key(*name));
        let told = only.map(|(name, text)| format!("{name}: {text}"));
        told.collect::<Vec<_>>()
    };
    assert_eq!(only_in(&expected, &found), [""; 0], "missing");
    assert_eq!(only_in(&found, &expected), [""; 0], "too many");
    for (name, text) in &expected {
        assert_eq!(text, &found[name], "{name}");
    }
}

/// Fakes that still run for `results`: QEMU dies with whoever started it.
fn guests_of(results: &Path) -> Vec<String> {
    let alive = || -> Vec<String> {
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|pid| {
                fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(results))
            })
            .collect()
    };
    let asked = Instant::now();
    while !alive().is_empty() && asked.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(20));
    }
    alive()
}

#[test]
fn a_campaign_killed_at_twenty_random_moments_ends_as_if_nothing_had_happened() {
    let place = Place::new(EXPERIMENT);
    let uninterrupted = place.path("uninterrupted");
    let began = Instant::now();
    place.finish(&uninterrupted);
    let whole = began.elapsed();
    let expected = contents(&uninterrupted);
    let tried = |name: &str| expected.keys().filter(|file| file.contains(name)).count();
    // The plan has what could go wrong: runs that are tried again, a cell given up.
    assert!(tried("-try1-") > 0, "{:?}", expected.keys());
    assert_eq!(tried("breaks/run.json"), 0);

    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = u64::from(since.unwrap().subsec_nanos());
    println!("seed of the moments: {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut kills = 0;
    let mut folder = 0;
    while kills < 20 {
        folder += 1;
        let results = place.path(&format!("killed-{folder}"));
        // A third of the time at most, so that several kills meet one campaign.
        while kills < 20 {
            let mut child = place.start(&results);
            let moment = random.random_range(Duration::ZERO..whole / 3);
            thread::sleep(moment);
            if child.try_wait().unwrap().is_some() {
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            assert_eq!(guests_of(&results), Vec::<String>::new());
        }
        place.finish(&results);
        assert_same(&uninterrupted, &results);
    }
    println!("{kills} kills of {folder} campaigns");
}

#[test]
fn a_campaign_stopped_with_ctrl_c_says_how_to_go_on_and_ends_the_same() {
    let place = Place::new(EXPERIMENT);
    let uninterrupted = place.path("uninterrupted");
    let began = Instant::now();
    place.finish(&uninterrupted);
    let results = place.path("stopped");
    let child = place.start(&results);
    thread::sleep(began.elapsed() / 2);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("interrupted; "), "{said}");
    let hint = format!("topolab run --resume {}", results.display());
    assert!(said.contains(&hint), "{said}");
    assert_eq!(guests_of(&results), Vec::<String>::new());
    place.finish(&results);
    assert_same(&uninterrupted, &results);
}

/// A file system of its own makes the disk small: `unshare` (util-linux) gives one
/// to whoever may make namespaces. It is gone with its last process, so that all
/// that happens in it is one script.
#[test]
fn a_campaign_that_meets_a_full_disk_goes_on_when_there_is_room_again() {
    let place = Place::new(EXPERIMENT);
    let uninterrupted = place.path("uninterrupted");
    place.finish(&uninterrupted);
    // Full at different steps of a run.
    for pages in [12, 21, 25, 30, 34] {
        let name = format!("full-after-{pages}-pages");
        let small = place.path(&name);
        fs::create_dir(&small).unwrap();
        let kept = |suffix: &str| place.path(&format!("{name}.{suffix}"));
        let script = format!(
            "mount -t tmpfs -o size={size}k tmpfs {small}\n\
             code=0\n\
             {topolab} run faked --seed 7 --accel tcg --output {small}/results \
                2>{small}.said || code=$?\n\
             echo $code >{small}.code\n\
             mount -o remount,size=64m {small}\n\
             {topolab} run --accel tcg --resume {small}/results 2>>{small}.said || [ $? = 6 ]\n\
             cp -r {small}/results {small}.copy\n",
            size = pages * 4,
            small = small.display(),
            topolab = env!("CARGO_BIN_EXE_topolab"),
        );
        let mut command = Command::new("unshare");
        for (name, value) in place.topolab(&[]).get_envs() {
            command.env(name, value.unwrap());
        }
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-e", "-c", &script]);
        let output = command.current_dir(place.folder.path()).output().unwrap();
        let said = fs::read_to_string(kept("said")).unwrap_or_default();
        assert!(output.status.success(), "{name}: {output:?}\n{said}");
        let code = fs::read_to_string(kept("code")).unwrap();
        assert_eq!(code.trim(), "5", "{name}: {said}");
        assert!(said.contains("No space left on device"), "{name}: {said}");
        assert!(said.contains("topolab run --resume"), "{name}: {said}");
        assert_same(&uninterrupted, &kept("copy"));
    }
}
