//! The file of a smaller machine.

use std::fmt::Write;

use crate::{
    document::{Document, node::Value},
    topology::{PinPolicy, Topology, size::Size},
};

/// Keys that stay as they were written.
const KEPT: [&str; 7] = [
    "distances",
    "asymmetric",
    "hmat",
    "caches",
    "cpu",
    "memory_backing",
    "deliberate",
];

/// Writes the file; its header says what it was made from.
pub(super) fn file(
    document: &Document,
    old: &Topology,
    small: &Topology,
    notes: &[String],
) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!(
        "# {} made smaller: {} vCPUs and {} stand for {} vCPUs and {}. Its own file says:",
        old.name,
        small.vcpus(),
        Size(small.memory()),
        old.vcpus(),
        Size(old.memory())
    ));
    let header = document.text().lines().take_while(|l| l.starts_with('#'));
    header.for_each(|comment| line(comment.into()));
    for note in notes {
        line(format!("# Not kept: {note}."));
    }
    line(format!("name: {}", small.name));
    line(format!("cpus: {{{}}}", cpus(small)));
    if small.cpus.lone_cores > 0 {
        let performance = small.cpus.cores - small.cpus.lone_cores;
        line(format!(
            "hybrid: {{performance: {performance}, efficient: {}}}",
            small.cpus.lone_cores
        ));
    }
    if document.root().get("nodes").is_some() {
        line("nodes:".into());
        for (index, node) in small.nodes.iter().enumerate() {
            let mut parts = Vec::new();
            if !node.cpus.is_empty() {
                parts.push(format!("cpus: {}", quoted(&node.cpus.to_string())));
            }
            if node.memory > 0 {
                parts.push(format!("memory: {}", Size(node.memory)));
            }
            let named = node.initiator.filter(|_| node.cpus.is_empty());
            parts.extend(named.map(|initiator| format!("initiator: {initiator}")));
            line(format!("  - {{{}}}  # node {index}", parts.join(", ")));
        }
    } else {
        line(format!("memory: {}", Size(small.memory())));
    }
    for key in KEPT {
        if let Some(node) = document.root().get(key) {
            line(format!("{key}: {}", flow(&node.value)));
        }
    }
    if !small.sets.is_empty() {
        line("sets:".into());
        for (name, cpus) in &small.sets {
            line(format!("  {name}: {}", quoted(&cpus.to_string())));
        }
    }
    if let Some(node) = document.root().get("cmdline") {
        line(format!("cmdline: {}", flow(&node.value)));
    }
    if let Some(rankings) = &small.preferred_cores {
        let mut per_core: Vec<String> = Vec::new();
        for (vcpu, ranking) in (0..).zip(rankings) {
            if small.cpus.core_and_thread(vcpu).1 == 0 {
                per_core.push(ranking.to_string());
            }
        }
        line(format!("preferred_cores: [{}]", per_core.join(", ")));
    }
    match small.pin {
        PinPolicy::Paired => line("pin: paired".into()),
        PinPolicy::None => line("pin: none".into()),
        PinPolicy::Auto | PinPolicy::Map(_) => {}
    }
    if let Some(node) = document.root().get("optional") {
        line(format!("optional: {}", flow(&node.value)));
    }
    text
}

fn cpus(small: &Topology) -> String {
    let layout = small.cpus;
    let named = [
        ("sockets", layout.sockets),
        ("dies", layout.dies),
        ("clusters", layout.clusters),
        ("cores", layout.cores),
        ("threads", layout.threads),
    ];
    let parts: Vec<String> = named
        .into_iter()
        .filter(|(name, count)| *count > 1 || ["sockets", "cores"].contains(name))
        .map(|(name, count)| format!("{name}: {count}"))
        .collect();
    parts.join(", ")
}

/// A list of CPUs holds a comma, which ends a value inside braces.
fn quoted(text: &str) -> String {
    if text.contains(',') {
        format!("\"{text}\"")
    } else {
        text.into()
    }
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(on) => on.to_string(),
        Value::Int(n) => n.to_string(),
        Value::Unsigned(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        // A double-quoted YAML scalar takes JSON's escapes.
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| flow(&item.value)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => {
            let mut out = String::from("{");
            for (index, (key, node)) in entries.iter().enumerate() {
                let comma = if index > 0 { ", " } else { "" };
                let key = serde_json::Value::from(key.text.as_str());
                write!(out, "{comma}{key}: {}", flow(&node.value)).expect("a String takes it");
            }
            out.push('}');
            out
        }
    }
}
