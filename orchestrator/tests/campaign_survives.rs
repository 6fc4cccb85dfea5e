//! A campaign that is killed and goes on yields what an undisturbed one yields.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Moments at which a campaign is killed.
const KILLS: u32 = 20;

const EXPERIMENT: &str = "\
name: survives
kernels: [k@base]
topologies: [t]
cmdlines: {good: fake=good, crash: fake=panic}
workloads:
  one: {command: {argv: [/bin/true]}}
  two: {command: {argv: [/bin/true, again]}}
rounds: 5
bench: {accel: tcg}
compare: {baseline: {cmdlines: good}, metrics: {things: {better: lower}}}
";

/// A folder with an experiment whose guests a fake QEMU plays.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for folder in ["topologies", "kernels", "bin"] {
            fs::create_dir(place.path(folder)).unwrap();
        }
        let machine = "name: t\ncpus: {cores: 1}\nmemory: 512M\n";
        fs::write(place.path("topologies/t.yaml"), machine).unwrap();
        fs::write(place.path("image"), image()).unwrap();
        let kernel = format!("name: k\nimage: {}\n", place.path("image").display());
        fs::write(place.path("kernels/k.yaml"), kernel).unwrap();
        fs::write(place.path("survives.yaml"), EXPERIMENT).unwrap();
        let mut examples = std::env::current_exe().unwrap();
        examples.pop();
        examples.pop();
        let fake = examples.join("examples/fake-qemu");
        assert!(fake.exists(), "cargo build -p topolab --examples");
        // What a QEMU can do is asked of the real one.
        let wrapper = format!(
            "#!/bin/sh\ncase \"$*\" in *fake=*) exec {} \"$@\" ;; esac\n\
             PATH=${{PATH#*:}}\nexec qemu-system-x86_64 \"$@\"\n",
            fake.display()
        );
        let program = place.path("bin/qemu-system-x86_64");
        fs::write(&program, wrapper).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_topolab"));
        command
            .arg("run")
            .args(arguments)
            .current_dir(self.0.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("TOPOLAB_CACHE", self.path("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Processes that work for this place.
    fn working(&self) -> usize {
        let marker = self.0.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter(|entry| {
                let folder = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
                folder.starts_with(marker)
            })
            .count()
    }
}

/// The least that is taken for a kernel of the release the fake guest runs.
fn image() -> Vec<u8> {
    let mut image = vec![0; 4096];
    image[0x1fe..0x200].copy_from_slice(b"\x55\xaa");
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    image[0x300..0x30f].copy_from_slice(b"6.12.0-fake (x)");
    image
}

/// Everything in a results folder but what depends on the clock.
fn kept(folder: &Path) -> BTreeMap<String, Value> {
    let mut kept = BTreeMap::new();
    for entry in fs::read_dir(folder.join("runs")).unwrap() {
        let run = entry.unwrap().path();
        let name = run.file_name().unwrap().to_str().unwrap().to_string();
        let mut files: Vec<String> = fs::read_dir(&run)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let text = fs::read_to_string(run.join("run.json"))
            .unwrap_or_else(|error| panic!("{name}: {error}, there are {files:?}"));
        let mut record: Value = serde_json::from_str(&text).unwrap();
        for clock in ["started", "wall_ms", "hello_ms", "phases", "trust", "notes"] {
            record.as_object_mut().unwrap().remove(clock).unwrap();
        }
        kept.insert(format!("{name} {files:?}"), record);
    }
    let text = fs::read_to_string(folder.join("campaign.json")).unwrap();
    let mut meta: Value = serde_json::from_str(&text).unwrap();
    meta.as_object_mut().unwrap().remove("started").unwrap();
    kept.insert("campaign.json".into(), meta);
    kept
}

/// Moments that are the same in every run of the test.
struct Moments(u64);

impl Moments {
    fn within(&mut self, most: Duration) -> Duration {
        // Knuth's multiplier (TAOCP 2, 3.3.4, line 26 of table 1).
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        most.mul_f64(f64::from(u32::try_from(self.0 >> 32).unwrap()) / f64::from(u32::MAX))
    }
}

#[test]
fn killed_at_twenty_moments_it_ends_as_if_undisturbed() {
    let place = Place::new();
    // What a QEMU can do is remembered; the first look at it takes its own time.
    let whole = place.path("whole");
    let start = |output: &str| place.run(&["survives.yaml", "--seed", "3", "--output", output]);
    assert!(start("first").status().unwrap().success());
    let begin = Instant::now();
    assert!(start("whole").status().unwrap().success());
    let took = begin.elapsed();
    let expected = kept(&whole);
    // Cells that keep panicking are given up after three runs.
    assert_eq!(expected.len(), 17, "{:?}", expected.keys());

    let mut moments = Moments(7);
    let (mut kills, mut campaigns) = (0, 0);
    while kills < KILLS {
        let output = format!("killed-{campaigns}");
        campaigns += 1;
        let mut next = start(&output);
        loop {
            let mut topolab = next.spawn().unwrap();
            sleep(moments.within(took));
            let ended = topolab.try_wait().unwrap();
            if ended.is_none() {
                topolab.kill().unwrap();
                kills += 1;
            }
            topolab.wait().unwrap();
            let until = Instant::now() + Duration::from_secs(10);
            while place.working() > 0 {
                assert!(Instant::now() < until, "something outlives topolab");
                sleep(Duration::from_millis(10));
            }
            if let Some(status) = ended {
                assert!(status.success(), "{status}");
                break;
            }
            next = if place.path(&output).join("campaign.json").exists() {
                place.run(&["--resume", &output])
            } else {
                start(&output)
            };
        }
        assert_eq!(kept(&place.path(&output)), expected, "{output}");
    }
    println!("{kills} kills in {campaigns} campaigns; an undisturbed one takes {took:?}");
}
