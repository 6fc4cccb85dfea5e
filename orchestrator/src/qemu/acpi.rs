//! The ACPI table that gives each vCPU a preferred-core ranking.
//!
//! An unmodified kernel with `X86_AMD_PSTATE` reads `_CPC` of every processor
//! object; the highest performance of each becomes its ranking
//! (`amd_pstate_init_prefcore()` in `drivers/cpufreq/amd-pstate.c`), and where
//! two differ it tells the scheduler to prefer some cores. QEMU writes no
//! `_CPC`, so a secondary table adds one to each object QEMU defines.

use acpi_tables::{
    Aml,
    aml::{Name, PackageBuilder, Path, Register, ResourceTemplate, Scope},
    gas::{AccessSize, AddressSpace, GAS},
    sdt::Sdt,
};

use crate::topology::Topology;

/// Number of entries of `_CPC` revision 3 (ACPI 6.5, section 8.4.6.1).
const ENTRIES: u8 = 23;
const REVISION: u8 = 3;
/// Nominal, lowest nonlinear and lowest performance, on the scale of the
/// rankings. The kernel wants them in descending order; which they are does not
/// matter to a guest without frequency scaling.
const NOMINAL: u32 = 100;
const LOWEST_NONLINEAR: u32 = 50;
const LOWEST: u32 = 10;
/// Reference performance, and the lowest and nominal frequency in MHz.
const REFERENCE: u32 = 100;
const LOWEST_MHZ: u32 = 400;
const NOMINAL_MHZ: u32 = 3000;
/// Nothing answers here on q35: reads give 0, writes are dropped. The driver
/// insists on registers it can write to ("failed to enable driver mode"
/// otherwise) and is content with counters that stand still.
const NOWHERE: u64 = 0xfed1_f000;

/// The table for `-acpitable file=`; `None` for a topology without rankings.
pub fn ssdt(topology: &Topology) -> Option<Vec<u8>> {
    let rankings = topology.preferred_cores.as_ref()?;
    let mut aml = Vec::new();
    for (vcpu, ranking) in (0..).zip(rankings) {
        let slot = topology.cpus.slot(vcpu);
        // QEMU's name of the object: hw/acpi/cpu.c, CPU_NAME_FMT.
        let path = Path::new(&format!("\\_SB_.CPUS.C{slot:03X}"));
        let cpc = Name::new("_CPC".into(), &cpc(*ranking));
        Scope::new(path, vec![&cpc]).to_aml_bytes(&mut aml);
    }
    let mut table = Sdt::new(*b"SSDT", 36, 2, *b"TPOLAB", *b"RANKINGS", 1);
    table.append_slice(&aml);
    table.update_checksum();
    Some(table.as_slice().to_vec())
}

/// One `_CPC` package. The specification names each entry by its place.
fn cpc(highest: u32) -> PackageBuilder {
    let register = || {
        Register::new(GAS::new(
            AddressSpace::SystemMemory,
            32,
            0,
            AccessSize::DwordAccess,
            NOWHERE,
        ))
    };
    let mut package = PackageBuilder::new();
    let number = |package: &mut PackageBuilder, value: u32| package.add_element(&value);
    number(&mut package, ENTRIES.into());
    number(&mut package, REVISION.into());
    number(&mut package, highest);
    number(&mut package, NOMINAL);
    number(&mut package, LOWEST_NONLINEAR);
    number(&mut package, LOWEST);
    let writable = register();
    let writable = ResourceTemplate::new(vec![&writable]);
    let null = Register::new(GAS::default());
    let null = ResourceTemplate::new(vec![&null]);
    package.add_element(&null); // guaranteed performance
    package.add_element(&writable); // desired performance
    package.add_element(&writable); // minimum performance
    package.add_element(&writable); // maximum performance
    package.add_element(&null); // performance reduction tolerance
    package.add_element(&null); // time window
    package.add_element(&null); // counter wraparound time
    package.add_element(&writable); // reference counter
    package.add_element(&writable); // delivered counter
    package.add_element(&null); // performance limited
    package.add_element(&writable); // enable
    package.add_element(&writable); // autonomous selection
    package.add_element(&null); // autonomous activity window
    package.add_element(&writable); // energy performance preference
    number(&mut package, REFERENCE);
    number(&mut package, LOWEST_MHZ);
    number(&mut package, NOMINAL_MHZ);
    package
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn topology(text: &str) -> Topology {
        Topology::from_text("t.yaml", text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn no_rankings_no_table() {
        assert_eq!(
            ssdt(&topology("{name: a, cpus: {cores: 2}, memory: 1G}")),
            None
        );
    }

    /// `iasl` takes the table apart and puts it together again without a
    /// complaint, and finds every entry where the specification has it.
    #[test]
    fn iasl_reads_the_table() {
        let topology = topology(
            "{name: a, cpus: {cores: 18}, memory: 1G, preferred_cores: \
             [166, 216, 231, 255, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]}",
        );
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("ssdt.aml");
        std::fs::write(&table, ssdt(&topology).unwrap()).unwrap();
        let iasl = |arguments: &[&str]| {
            let output = Command::new("iasl")
                .args(arguments)
                .current_dir(&folder)
                .output()
                .expect("iasl (Debian: acpica-tools) is installed");
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            said
        };
        iasl(&["-d", "ssdt.aml"]);
        let said = iasl(&["-p", "again", "ssdt.dsl"]);
        assert!(said.contains("0 Errors, 0 Warnings"), "{said}");
        let listing = std::fs::read_to_string(folder.path().join("ssdt.dsl")).unwrap();
        let code = listing.split_once("DefinitionBlock").unwrap().1;
        assert!(code.contains("Scope (\\_SB.CPUS.C011)"), "{code}");
        let end = code.find("Scope (\\_SB.CPUS.C001)").unwrap();
        insta::assert_snapshot!(code[..end].trim_end());
    }
}
