//! Why an option is what it is.

use std::fmt;

use super::{Expr, Kconfig, Tristate};
use crate::kernel::config::{KernelConfig, Value};

/// An option, its value, and what keeps it from another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The option, without `CONFIG_`.
    pub option: String,
    /// Its value in the configuration.
    pub value: Value,
    /// Where it is defined, `FILE:LINE`.
    pub defined: Vec<String>,
    /// What keeps it from the wanted value.
    pub causes: Vec<Cause>,
}

/// One thing that keeps an option from a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// No Kconfig file of this architecture defines it.
    Unknown {
        /// Options with a similar name.
        similar: Vec<String>,
    },
    /// A dependency is not met.
    Unmet {
        /// The part of the expression that is not met.
        needs: String,
        /// The values of its symbols, `NAME=value`.
        values: Vec<String>,
        /// Why those symbols are off in their turn.
        because: Vec<Why>,
    },
    /// It has a prompt, but it is hidden.
    Hidden {
        /// The part of the prompt's condition that is not met.
        needs: String,
    },
    /// It has no prompt: no file can set it, only others' selects and its defaults.
    NoPrompt {
        /// Options that select it, with the condition if there is one.
        selectors: Vec<String>,
        /// Its defaults.
        defaults: Vec<String>,
    },
    /// Another option is on and selects it.
    Selected {
        /// That option.
        by: String,
    },
    /// Only one of a choice can be on, and it is another.
    Choice {
        /// The one that is on.
        chosen: String,
    },
    /// The value is outside the range.
    Range {
        /// Lowest value.
        low: String,
        /// Highest value.
        high: String,
    },
    /// Modules are off.
    NoModules,
    /// Nothing found: the dependencies as read are met.
    Unclear,
}

/// How far the causes of causes are followed.
const DEPTH: usize = 4;

impl Kconfig {
    /// Why an option does not have the wanted value in a final configuration.
    pub fn why(&self, option: &str, wanted: &Value, config: &KernelConfig) -> Why {
        self.explain(option, wanted, config, DEPTH)
    }

    fn explain(&self, option: &str, wanted: &Value, config: &KernelConfig, depth: usize) -> Why {
        let definitions = self.definitions(option);
        let mut why = Why {
            option: option.to_owned(),
            value: config.get(option).cloned().unwrap_or(Value::No),
            defined: definitions
                .iter()
                .map(|d| format!("{}:{}", d.file, d.line))
                .collect(),
            causes: Vec::new(),
        };
        if definitions.is_empty() {
            let similar = self.similar(option);
            why.causes.push(Cause::Unknown { similar });
            return why;
        }
        if *wanted == Value::No {
            why.causes = self.why_on(option, config);
            return why;
        }
        let needed = match wanted {
            Value::Module => Tristate::Module,
            _ => Tristate::Yes,
        };
        // The definition that is nearest to being usable is the one to talk about.
        let nearest = definitions
            .iter()
            .min_by_key(|d| d.depends.unmet(needed, config).len())
            .expect("there is at least one definition");
        for part in nearest.depends.unmet(needed, config) {
            let mut symbols = Vec::new();
            part.symbols(&mut symbols);
            symbols.dedup();
            let values = symbols
                .iter()
                .map(|name| format!("{name}={}", config.get(name).unwrap_or(&Value::No)))
                .collect();
            let because = match part {
                Expr::Symbol(name) if depth > 0 && !config.is_on(name) => {
                    Some(self.explain(name, &Value::Yes, config, depth - 1))
                        .filter(|deeper| deeper.causes != [Cause::Unclear])
                        .into_iter()
                        .collect()
                }
                _ => Vec::new(),
            };
            why.causes.push(Cause::Unmet {
                needs: part.to_string(),
                values,
                because,
            });
        }
        if !why.causes.is_empty() {
            return why;
        }
        if let Some(choice) = nearest.choice {
            let chosen = self.symbols.iter().find(|(name, definitions)| {
                *name != option
                    && config.is_on(name)
                    && definitions.iter().any(|d| d.choice == Some(choice))
            });
            if let Some((chosen, _)) = chosen {
                let chosen = chosen.clone();
                why.causes.push(Cause::Choice { chosen });
                return why;
            }
        }
        if *wanted == Value::Module && !config.is_on("MODULES") {
            why.causes.push(Cause::NoModules);
        }
        match &nearest.prompt {
            None => why.causes.push(Cause::NoPrompt {
                selectors: self.selectors_of(option),
                defaults: nearest.defaults.iter().map(with_condition).collect(),
            }),
            Some(condition) => {
                let hidden = condition.unmet(Tristate::Module, config).into_iter();
                why.causes.extend(hidden.map(|part| Cause::Hidden {
                    needs: part.to_string(),
                }));
            }
        }
        let range = nearest
            .ranges
            .iter()
            .find(|(_, _, condition)| condition.eval(config) > Tristate::No);
        if let (Value::Number(_), Some((low, high, _))) = (wanted, range) {
            let shown = |end: &Expr| match end {
                Expr::Symbol(name) => match config.get(name) {
                    Some(value) => format!("{value} ({name})"),
                    None => name.clone(),
                },
                other => other.to_string(),
            };
            why.causes.push(Cause::Range {
                low: shown(low),
                high: shown(high),
            });
        }
        if why.causes.is_empty() {
            why.causes.push(Cause::Unclear);
        }
        why
    }

    /// Why an option is on that should be off.
    fn why_on(&self, option: &str, config: &KernelConfig) -> Vec<Cause> {
        let selectors = self.selectors.get(option).into_iter().flatten();
        let mut causes: Vec<Cause> = selectors
            .filter(|(by, condition)| config.is_on(by) && condition.eval(config) > Tristate::No)
            .map(|(by, _)| Cause::Selected { by: by.clone() })
            .collect();
        if causes.is_empty() {
            let definitions = self.definitions(option);
            if definitions.iter().all(|d| d.prompt.is_none()) {
                causes.push(Cause::NoPrompt {
                    selectors: self.selectors_of(option),
                    defaults: definitions
                        .iter()
                        .flat_map(|d| d.defaults.iter().map(with_condition))
                        .collect(),
                });
            } else {
                causes.push(Cause::Unclear);
            }
        }
        causes
    }

    fn selectors_of(&self, option: &str) -> Vec<String> {
        let selectors = self.selectors.get(option).into_iter().flatten();
        selectors
            .map(|(by, condition)| match condition {
                Expr::Literal(y) if y == "y" => by.clone(),
                condition => format!("{by} (if {condition})"),
            })
            .collect()
    }
}

fn with_condition((value, condition): &(Expr, Expr)) -> String {
    match condition {
        Expr::Literal(y) if y == "y" => value.to_string(),
        condition => format!("{value} if {condition}"),
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes: Vec<String> = self.causes.iter().map(ToString::to_string).collect();
        f.write_str(&causes.join("; "))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { similar } => {
                f.write_str("no Kconfig file of this architecture defines it")?;
                if similar.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; did you mean {}?", similar.join(", "))
                }
            }
            Self::Unmet {
                needs,
                values,
                because,
            } => {
                write!(f, "it depends on {needs} ({})", values.join(", "))?;
                for deeper in because {
                    write!(f, ", and for {}: {deeper}", deeper.option)?;
                }
                Ok(())
            }
            Self::Hidden { needs } => write!(f, "its prompt only shows with {needs}"),
            Self::NoPrompt {
                selectors,
                defaults,
            } => {
                f.write_str("it has no prompt and cannot be set")?;
                if !selectors.is_empty() {
                    let shown: Vec<&str> = selectors.iter().take(6).map(String::as_str).collect();
                    let more = if selectors.len() > 6 { ", …" } else { "" };
                    write!(f, "; it is selected by {}{more}", shown.join(", "))?;
                }
                if !defaults.is_empty() {
                    write!(f, "; its default is {}", defaults.join(", else "))?;
                }
                Ok(())
            }
            Self::Selected { by } => write!(f, "{by} is on and selects it"),
            Self::Choice { chosen } => {
                write!(f, "only one of a choice can be on, and that is {chosen}")
            }
            Self::Range { low, high } => write!(f, "its range is {low} to {high}"),
            Self::NoModules => f.write_str("MODULES is off, so nothing can be a module"),
            Self::Unclear => f.write_str(
                "its dependencies look met; a check of the compiler may have failed ($(…) in Kconfig)",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TOP: &str = r#"
mainmenu "Linux"
source "arch/$(SRCARCH)/Kconfig"
config MODULES
	bool "modules"
config EXPERT
	bool "expert"
menu "Processor"
	depends on MMU
config NUMA
	bool "NUMA"
	depends on SMP
	depends on X86_64 || (X86_32 && HIGHMEM)
	help
	  config FAKE
	  is not a symbol.

config NUMA_BALANCING
	bool "balancing"
	depends on NUMA && \
		MIGRATION
if EXPERT
config HIDDEN
	bool "hidden"
endif
config PROMPTED
	bool "prompted" if EXPERT
	default y
endmenu
config PADATA
	bool
config CRYPTO_PCRYPT
	tristate "pcrypt"
	select PADATA if SMP
choice
	prompt "preemption"
config PREEMPT_NONE
	bool "none"
config PREEMPT
	bool "full"
endchoice
config NR_CPUS
	int "cpus" if SMP
	range 2 NR_CPUS_RANGE_END
config NR_CPUS_RANGE_END
	int
	default 512 if SMP
config CC_THING
	bool "thing"
	depends on $(cc-option,-fthing)
"#;

    fn kconfig() -> Kconfig {
        let arch = "config MMU\n\tdef_bool y\nconfig X86_64\n\tdef_bool y\nconfig SMP\n\tbool \"smp\"\n\
            config MIGRATION\n\tbool \"migration\"\n";
        let variables = BTreeMap::from([("SRCARCH".to_owned(), "x86".to_owned())]);
        Kconfig::read(
            |path| {
                Ok(match path {
                    "Kconfig" => Some(TOP.to_owned()),
                    "arch/x86/Kconfig" => Some(arch.to_owned()),
                    _ => None,
                })
            },
            &variables,
        )
        .unwrap()
    }

    fn why(option: &str, wanted: &str, config: &str) -> String {
        let config = KernelConfig::parse(config);
        kconfig()
            .why(option, &Value::parse(wanted), &config)
            .to_string()
    }

    const BASE: &str = "CONFIG_MMU=y\nCONFIG_X86_64=y\n";

    #[test]
    fn the_chain_of_unmet_dependencies_is_followed() {
        assert_eq!(
            why("NUMA_BALANCING", "y", BASE),
            "it depends on NUMA (NUMA=n), and for NUMA: it depends on SMP (SMP=n); \
             it depends on MIGRATION (MIGRATION=n)"
        );
    }

    #[test]
    fn help_texts_define_nothing() {
        assert!(kconfig().definitions("FAKE").is_empty());
        assert_eq!(kconfig().definitions("NUMA")[0].line, 10);
    }

    #[test]
    fn a_typo_is_recognised() {
        assert_eq!(
            why("NUMA_BALANCNG", "y", BASE),
            "no Kconfig file of this architecture defines it; did you mean NUMA_BALANCING?"
        );
    }

    #[test]
    fn options_without_prompt() {
        assert_eq!(
            why("PADATA", "y", BASE),
            "it has no prompt and cannot be set; it is selected by CRYPTO_PCRYPT (if SMP)"
        );
    }

    #[test]
    fn hidden_chosen_selected_and_out_of_range() {
        assert_eq!(why("HIDDEN", "y", BASE), "it depends on EXPERT (EXPERT=n)");
        assert_eq!(
            why("PROMPTED", "y", BASE),
            "its prompt only shows with EXPERT"
        );
        assert_eq!(
            why("PREEMPT", "y", "CONFIG_PREEMPT_NONE=y\n"),
            "only one of a choice can be on, and that is PREEMPT_NONE"
        );
        let smp = "CONFIG_MMU=y\nCONFIG_SMP=y\nCONFIG_NR_CPUS_RANGE_END=512\nCONFIG_CRYPTO_PCRYPT=y\nCONFIG_PADATA=y\n";
        assert_eq!(
            why("NR_CPUS", "9999", smp),
            "its range is 2 to 512 (NR_CPUS_RANGE_END)"
        );
        assert_eq!(
            why("PADATA", "n", smp),
            "CRYPTO_PCRYPT is on and selects it"
        );
        assert_eq!(
            why("CRYPTO_PCRYPT", "m", smp),
            "MODULES is off, so nothing can be a module"
        );
    }

    #[test]
    fn compiler_checks_are_not_blamed_on_symbols() {
        assert!(why("CC_THING", "y", BASE).contains("a check of the compiler may have failed"));
    }
}
