//! Real kernels in real guests.

mod real;

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use topolab::{
    outcome::Outcome,
    run::{
        RunEvent,
        warm::{self, SavedError, SavedGuest},
    },
};
use topolab_protocol::{frame::STREAM_STDOUT, message::ExitStatus};

use real::{bench, run, session, unit};

fn stdout(events: &[RunEvent]) -> String {
    let mut text = Vec::new();
    for event in events {
        if let RunEvent::Output { stream, bytes } = event
            && *stream == STREAM_STDOUT
        {
            text.extend(bytes);
        }
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn two_nodes_boot_are_proved_and_run_a_program() {
    let unit = unit("dual-node-4", &["/bin/echo", "hello"], &["/bin/echo"]).await;
    let (result, events) = run(&unit).await;
    assert_eq!(
        result.outcome,
        Outcome::Completed,
        "{:#?}",
        result.console_tail
    );
    assert_eq!(stdout(&events), "hello\n");
    let observed = result.observed.unwrap();
    assert_eq!(observed.nodes.len(), 2);
    assert_eq!(result.environment.build_id, observed.build_id);
    assert!(result.environment.build_id.len() >= 32);
    println!(
        "start of QEMU to hello: {} ms, to its end: {} ms",
        result.hello_ms.unwrap(),
        result.wall_ms
    );
}

#[tokio::test]
async fn the_guests_exit_code_comes_back() {
    let unit = unit("smp-4", &["/bin/sh", "-c", "exit 37"], &["/bin/sh"]).await;
    let (result, _) = run(&unit).await;
    assert_eq!(result.exit, Some(ExitStatus::Exited { code: 37 }));
    assert_eq!(result.outcome.detail(), "exit code 37");
}

#[tokio::test]
async fn a_real_panic_is_told_by_its_title() {
    let crash = "echo c > /proc/sysrq-trigger; sleep 100";
    let unit = unit(
        "one-core",
        &["/bin/sh", "-c", crash],
        &["/bin/sh", "/bin/sleep"],
    )
    .await;
    let (result, _) = run(&unit).await;
    assert_eq!(
        result.outcome,
        Outcome::GuestPanic {
            title: "Kernel panic - not syncing: sysrq triggered crash".into()
        }
    );
    let tail = result.console_tail.join("\n");
    assert!(tail.contains("sysrq: Trigger a crash"), "{tail}");
}

#[tokio::test]
async fn another_kernel_than_the_one_built_is_the_labs_failure() {
    let mut unit = unit("one-core", &["/bin/date"], &["/bin/date"]).await;
    let booted = unit.kernel.clone();
    for stale in ["build id", "release"] {
        unit.kernel = booted.clone();
        match stale {
            "build id" => unit.kernel.build_id = Some("00ff".repeat(10)),
            _ => unit.kernel.release = Some("6.12.0-stale".into()),
        }
        let (result, events) = run(&unit).await;
        let Outcome::LabFailed { part, reason } = &result.outcome else {
            panic!("{:?}", result.outcome);
        };
        assert_eq!(part, "identity");
        let start = format!("the guest runs another kernel: {stale} ");
        assert!(reason.starts_with(&start), "{reason}");
        // Nothing was started, so nothing can be taken for a measurement.
        assert_eq!((&result.samples, &result.exit), (&Vec::new(), &None));
        assert_eq!(stdout(&events), "");
    }
}

#[tokio::test]
async fn a_guest_that_switches_itself_off_has_no_result() {
    let off = "echo o > /proc/sysrq-trigger; sleep 100";
    let unit = unit(
        "one-core",
        &["/bin/sh", "-c", off],
        &["/bin/sh", "/bin/sleep"],
    )
    .await;
    let (result, _) = run(&unit).await;
    assert_eq!(
        result.outcome.detail(),
        "the guest powered itself off before the workload ended"
    );
}

#[tokio::test]
async fn text_of_programs_neither_fakes_nor_hides_a_complaint() {
    let fake = "echo '[    9.0] BUG: made up' > /dev/console; \
        echo '<0>Kernel panic - not syncing: made up' > /dev/kmsg; sleep 5";
    let unit = unit(
        "one-core",
        &["/bin/sh", "-c", fake],
        &["/bin/sh", "/bin/sleep"],
    )
    .await;
    let (result, _) = run(&unit).await;
    assert_eq!(result.outcome, Outcome::Completed, "{:#?}", result.notes);
    let told = |what: &str| result.notes.iter().any(|note| note.contains(what));
    assert!(told("the kernel goes on"), "{:#?}", result.notes);
    assert!(
        told("the kernel did not write: BUG: made up"),
        "{:#?}",
        result.notes
    );
}

#[tokio::test]
async fn a_saved_guest_is_restored_proved_again_and_runs() {
    let unit = unit("dual-node-4", &["/bin/date", "+%s"], &["/bin/date"]).await;
    let bench = bench(&unit).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("guest");
    let key = warm::key(&unit, &bench);
    assert_eq!(SavedGuest::load(&file, &key).unwrap(), None);
    let mut deaf = |_| {};
    let run = folder.path().join("save");
    let saved = warm::save(&unit, &bench, &run, &file, session(&mut deaf)).await;
    let saved = saved.unwrap_or_else(|result| panic!("{result:#?}"));
    assert_eq!(SavedGuest::load(&file, &key).unwrap(), Some(saved.clone()));
    for round in 0..3 {
        let mut events = Vec::new();
        let mut hear = |event| events.push(event);
        let run = folder.path().join(format!("run{round}"));
        let result = warm::execute(&unit, &bench, &saved, &run, session(&mut hear)).await;
        assert_eq!(
            result.outcome,
            Outcome::Completed,
            "{:#?}",
            result.console_tail
        );
        println!(
            "saved {} bytes; cold hello {} ms, warm hello {} ms, warm run {} ms",
            saved.bytes,
            saved.hello_ms,
            result.hello_ms.unwrap(),
            result.wall_ms
        );
        // The clock is the host's, not that of the saved guest.
        let guest: u64 = stdout(&events).trim().parse().unwrap();
        let host = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        assert!(host.abs_diff(guest) < 60, "{guest} {host}");
    }
    // A damaged file is named, not restored.
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(matches!(
        SavedGuest::load(&file, &key),
        Err(SavedError::Damaged { .. })
    ));
}
