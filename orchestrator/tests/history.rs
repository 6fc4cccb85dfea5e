//! `topolab history` over a row of nights.

#[path = "synthetic/numa_scan.rs"]
mod numa_scan;
mod synthetic;

use std::process::{Command, Output};

use numa_scan::numa_scan;

#[test]
fn the_night_a_level_changed_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let mut args: Vec<String> = vec!["history".into()];
    for night in 0..10u64 {
        let mut campaign = numa_scan(night);
        campaign.meta.started = format!("2026-11-{:02}T23:00:00Z", night + 11);
        for record in &mut campaign.records {
            if night >= 6 {
                record.samples[0].value = (record.samples[0].value * 1.12).round();
            }
        }
        let name = format!("night-{night}");
        campaign.write(&folder.path().join(&name));
        args.push(name);
    }
    let run = |more: &[&str]| -> Output {
        Command::new(env!("CARGO_BIN_EXE_topolab"))
            .args(&args)
            .args(more)
            .current_dir(folder.path())
            .env_clear()
            .output()
            .unwrap()
    };
    let one = ["--only", "kernels=*@base", "--only", "settings=unpinned"];
    let output = run(&[&one[..], &["--html", "h.html"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout), @"
    numa_pte_updates (count, lower is better) of linux-6.12@base · dual-node-4 · default · unpinned ·
      scan
    night       results  runs          value  plot                      change of level
    2026-11-11  night-0     6  49 786 ±3.8 %  ·●······················
    2026-11-12  night-1     6  49 592 ±2.2 %  ●·······················
    2026-11-13  night-2     6  50 005 ±2.4 %  ·●······················
    2026-11-14  night-3     6  49 634 ±3.3 %  ●·······················
    2026-11-15  night-4     6  50 937 ±4.2 %  ·····●··················
    2026-11-16  night-5     6  50 626 ±1.9 %  ····●···················
    2026-11-17  night-6     6  55 584 ±3.1 %  ·····················●··  ← worse +11.6 % (p = 0.008)
    2026-11-18  night-7     6  56 290 ±1.6 %  ·······················●
    2026-11-19  night-8     6  56 056 ±2.2 %  ······················●·
    2026-11-20  night-9     6  55 704 ±1.3 %  ·····················●··
    mean ±CoV of a night's runs; plot from 49 592 to 56 290
    ");
    let page = std::fs::read_to_string(folder.path().join("h.html")).unwrap();
    assert!(page.contains("worse") && !page.contains("<script"));

    let json: serde_json::Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 4);
    assert_eq!(json[0]["changes"][0]["at"], 6);
    let csv = String::from_utf8(run(&["--format", "csv"]).stdout).unwrap();
    assert_eq!(csv.lines().count(), 1 + 4 * 10);
    let unknown = run(&["-m", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8_lossy(&unknown.stderr), @"error: no night yielded `nothing`; the newest has: numa_pte_updates, passes");
}
