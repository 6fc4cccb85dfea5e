//! `topolab topology pins`: which host CPU each vCPU would get.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use comfy_table::Table;
use topolab::{
    host::{self, Inventory, LeaseError, Leases, PinMode, PinPlan},
    topology::{CpuList, PinPolicy, Topology},
};

use super::resolve;
use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    lab,
    terminal::Terminal,
};

#[derive(Debug, Args)]
pub(super) struct PinsArgs {
    /// A topology file, or a name in ./topologies
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// In place of what the file says: auto, paired, none, or pairs of vCPUs and
    /// host CPUs like '0-3=2-5 4=7'
    #[arg(long, value_name = "PINS")]
    pin: Option<PinPolicy>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PinsArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let topology = Topology::read(&resolve(&args.file)?)?;
    let host = Inventory::read(Path::new("/")).map_err(|e| Failure::of(Kind::Lab, &e))?;
    let policy = args.pin.as_ref().unwrap_or(&topology.pin);
    // Planned as a run would, around what other guests have now; nothing is taken.
    let leases = Leases::new(&lab::leases(&Folders::from_environment()?));
    let seen =
        leases.take::<_, LeaseError>(&host.online, |leased| Ok((CpuList::new(), leased.clone())));
    let (_nothing, leased) = seen.map_err(|e| Failure::of(Kind::Lab, &e))?;
    let plan = host::plan(&topology, policy, &host, &leased).map_err(|error| {
        Failure::lab(error).hint(format_args!(
            "topolab topology pins {} --pin auto",
            args.file.display()
        ))
    })?;
    if args.json {
        terminal.json(&plan);
        return Ok(ExitCode::SUCCESS);
    }
    for note in &plan.notes {
        terminal.say(format_args!("note: {note}"));
    }
    match plan.mode {
        PinMode::None => terminal.answer("not pinned: the host's scheduler places the vCPUs"),
        _ => terminal.table(table(&topology, &host, &plan)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Guest CPUs beside host CPUs, with what both belong to.
fn table(topology: &Topology, host: &Inventory, plan: &PinPlan) -> Table {
    let mut table = Table::new();
    table.set_header(["vCPU", "of", "host CPU", "of"]);
    for (vcpu, cpus) in (0..).zip(&plan.vcpus) {
        let place = topology.place(vcpu);
        let node = topology.node_of(vcpu);
        // A core is called after its first CPU, in guest and host alike.
        let core = vcpu - place.thread;
        let of = format!("core {core}, socket {}, node {node}", place.socket);
        table.add_row([vcpu.to_string(), of, cpus.to_string(), on(host, cpus)]);
    }
    if let Some(others) = &plan.others {
        table.add_row(["QEMU", "its other threads", &others.to_string(), ""]);
    }
    for (node, on) in plan.nodes.iter().enumerate() {
        if let Some(on) = on {
            let guest = format!("guest node {node}");
            table.add_row(["memory", &guest, "", &format!("host node {on}")]);
        }
    }
    table
}

fn on(host: &Inventory, cpus: &CpuList) -> String {
    let one = cpus.first().filter(|_| cpus.len() == 1);
    one.and_then(|cpu| host.cpu(cpu))
        .map(|cpu| {
            format!(
                "core {}, socket {}, node {}",
                cpu.siblings.first().unwrap_or(cpu.cpu),
                cpu.package,
                cpu.node
            )
        })
        .unwrap_or_default()
}
