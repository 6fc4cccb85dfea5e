//! Compilers: which one builds for which architecture, and what it calls itself.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::spec::Arch;
use super::tools::{ToolError, Tools, command, output};

/// A compiler as a user names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Compiler {
    /// GCC: the machine's own, or the cross compiler Debian ships.
    #[default]
    Gcc,
    /// Clang with the tools of LLVM.
    Clang,
    /// A program, such as `gcc-13` or `/opt/cross/bin/sh4-linux-gcc`.
    Named(String),
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gcc => f.write_str("gcc"),
            Self::Clang => f.write_str("clang"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl From<String> for Compiler {
    fn from(text: String) -> Self {
        match text.as_str() {
            "gcc" => Self::Gcc,
            "clang" => Self::Clang,
            _ => Self::Named(text),
        }
    }
}

impl From<Compiler> for String {
    fn from(compiler: Compiler) -> Self {
        compiler.to_string()
    }
}

impl FromStr for Compiler {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.to_owned().into())
    }
}

/// A compiler that is there, and how make is told to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Toolchain {
    /// Variables on make's command line.
    pub variables: Vec<String>,
    /// The program that compiles; ccache is put in front of this name.
    pub program: PathBuf,
    /// First line of its `--version`.
    pub id: String,
}

/// A compiler that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// It is not installed.
    #[error("'{program}', which compiles for {arch}, is not installed{}", in_package(.package.as_deref()))]
    Missing {
        /// The program.
        program: String,
        /// Architecture as `ARCH=` names it.
        arch: String,
        /// Debian's package that has it.
        package: Option<String>,
    },
    /// No compiler is known for the architecture.
    #[error(
        "no compiler is known for '{arch}': name one, as in {arch}:allnoconfig:/path/to/{arch}-linux-gcc"
    )]
    UnknownArch {
        /// Architecture as `ARCH=` names it.
        arch: String,
    },
    /// It cannot be asked for its version.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

fn in_package(package: Option<&str>) -> String {
    package.map_or(String::new(), |package| {
        format!("; on Debian it is in {package}")
    })
}

/// Debian's names of cross compilers, by the kernel's architecture.
const CROSS: [(&str, &str); 13] = [
    ("alpha", "alpha-linux-gnu"),
    ("arm", "arm-linux-gnueabi"),
    ("arm64", "aarch64-linux-gnu"),
    ("m68k", "m68k-linux-gnu"),
    ("mips", "mips-linux-gnu"),
    ("parisc", "hppa-linux-gnu"),
    ("powerpc", "powerpc64le-linux-gnu"),
    ("riscv", "riscv64-linux-gnu"),
    ("s390", "s390x-linux-gnu"),
    ("sh", "sh4-linux-gnu"),
    ("sparc", "sparc64-linux-gnu"),
    ("x86_64", "x86-64-linux-gnu"),
    ("i386", "i686-linux-gnu"),
];

impl Toolchain {
    /// Finds a compiler for an architecture and asks who it is.
    pub async fn find(
        arch: &Arch,
        compiler: &Compiler,
        tools: &Tools,
    ) -> Result<Self, ToolchainError> {
        let native = is_native(arch, std::env::consts::ARCH);
        let triplet = CROSS
            .iter()
            .find(|(name, _)| *name == arch.0)
            .map(|(_, triplet)| *triplet);
        let (program, mut variables, package) = match compiler {
            Compiler::Gcc if native => {
                let program = tools.cc.clone();
                let variable = format!("CC={}", program.display());
                (program, vec![variable], Some("gcc".to_owned()))
            }
            Compiler::Gcc => {
                let triplet = triplet.ok_or_else(|| ToolchainError::UnknownArch {
                    arch: arch.0.clone(),
                })?;
                (
                    PathBuf::from(format!("{triplet}-gcc")),
                    vec![format!("CROSS_COMPILE={triplet}-")],
                    Some(format!("gcc-{triplet}")),
                )
            }
            Compiler::Clang => (
                PathBuf::from("clang"),
                vec!["LLVM=1".to_owned()],
                Some("clang, lld and llvm".to_owned()),
            ),
            Compiler::Named(name) => {
                let prefix = name
                    .strip_suffix("gcc")
                    .filter(|prefix| prefix.ends_with('-'));
                let variable = match prefix {
                    Some(prefix) => format!("CROSS_COMPILE={prefix}"),
                    None => format!("CC={name}"),
                };
                (PathBuf::from(name), vec![variable], None)
            }
        };
        if arch.0 == "um" {
            // As the machine: its 32-bit default needs the libraries of a second
            // architecture.
            variables.push("SUBARCH=x86_64".to_owned());
        }
        Ok(Self {
            id: identify(&program, arch, package).await?,
            program,
            variables,
        })
    }
}

/// True when the machine's own compiler builds for the architecture.
fn is_native(arch: &Arch, machine: &str) -> bool {
    matches!(
        (machine, arch.0.as_str()),
        ("x86_64", "x86_64" | "i386" | "x86" | "um") | ("aarch64", "arm64")
    )
}

async fn identify(
    program: &Path,
    arch: &Arch,
    package: Option<String>,
) -> Result<String, ToolchainError> {
    match output(command(program).arg("--version")).await {
        Ok(said) => {
            let said = String::from_utf8_lossy(&said);
            Ok(said.lines().next().unwrap_or_default().trim().to_owned())
        }
        Err(ToolError::NotInstalled { program }) => Err(ToolchainError::Missing {
            program,
            arch: arch.0.clone(),
            package,
        }),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Tools {
        Tools::in_path(std::env::var_os("PATH").as_deref())
    }

    #[tokio::test]
    async fn the_machines_own_compiler() {
        let found = Toolchain::find(&Arch("x86_64".into()), &Compiler::Gcc, &tools()).await;
        let found = found.unwrap();
        assert_eq!(found.variables, ["CC=gcc"]);
        assert!(found.id.starts_with("gcc"), "{}", found.id);
    }

    #[tokio::test]
    async fn what_is_missing_is_named_with_its_package() {
        let missing = Toolchain::find(&Arch("alpha".into()), &Compiler::Gcc, &tools()).await;
        assert_eq!(
            missing.unwrap_err().to_string(),
            "'alpha-linux-gnu-gcc', which compiles for alpha, is not installed; on Debian it is in gcc-alpha-linux-gnu"
        );
        let unknown = Toolchain::find(&Arch("z80".into()), &Compiler::Gcc, &tools()).await;
        assert!(
            unknown
                .unwrap_err()
                .to_string()
                .starts_with("no compiler is known for 'z80'")
        );
        let named = Compiler::from("/no/such/sh4-linux-gcc".to_owned());
        let missing = Toolchain::find(&Arch("sh".into()), &named, &tools()).await;
        assert!(matches!(
            missing,
            Err(ToolchainError::Missing { package: None, .. })
        ));
    }
}
