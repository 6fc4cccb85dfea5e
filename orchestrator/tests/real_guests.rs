//! Real kernels in real guests.

mod real;

use topolab::{outcome::Outcome, run::RunEvent};
use topolab_protocol::{frame::STREAM_STDOUT, message::ExitStatus};

use real::{run, unit};

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
