//! What compilers, linkers and make complain about in a build log. Pure.

use serde::{Deserialize, Serialize};

/// One complaint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file, relative to the top of the tree; nothing for a linker's complaint.
    pub file: Option<String>,
    /// Line in the file, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// The message, with `[-W…]` if the compiler gives one.
    pub message: String,
    /// The function it is in, as the compiler says before it.
    pub function: Option<String>,
    /// The compiler's picture: source lines and carets below the message.
    pub context: Vec<String>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The build fails.
    Error,
    /// The build goes on.
    Warning,
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            for number in [self.line, self.column].into_iter().flatten() {
                write!(f, "{number}:")?;
            }
            f.write_str(" ")?;
        }
        match self.severity {
            Severity::Error => f.write_str("error: ")?,
            Severity::Warning => f.write_str("warning: ")?,
        }
        f.write_str(&self.message)
    }
}

/// Every complaint of a log, in its order. Complaints of make itself ("Error 1")
/// only follow from others and are left out, unless nothing else is there.
pub fn read(log: &str) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut function: Option<(String, String)> = None;
    let mut make_error = None;
    let mut in_picture = false;
    for line in log.lines() {
        if in_picture && is_picture(line) {
            if let Some(last) = found.last_mut() {
                last.context.push(line.to_owned());
            }
            continue;
        }
        in_picture = false;
        if let Some(place) = function_line(line) {
            function = Some(place);
        } else if let Some(mut one) = compiler_line(line).or_else(|| linker_line(line)) {
            one.function = match (&function, &one.file) {
                (Some((file, name)), Some(here)) if file == here => Some(name.clone()),
                _ => None,
            };
            in_picture = true;
            found.push(one);
        } else if let Some(message) = make_line(line) {
            make_error.get_or_insert(message);
        }
    }
    if !found.iter().any(|one| one.severity == Severity::Error)
        && let Some(message) = make_error
    {
        found.push(plain(Severity::Error, message));
    }
    found
}

fn plain(severity: Severity, message: String) -> Diagnostic {
    Diagnostic {
        severity,
        file: None,
        line: None,
        column: None,
        message,
        function: None,
        context: Vec::new(),
    }
}

/// `FILE:LINE:COLUMN: error: MESSAGE`, as gcc, clang, sparse and Kconfig write.
fn compiler_line(line: &str) -> Option<Diagnostic> {
    let (place, severity, message) = [
        (": fatal error: ", Severity::Error),
        (": error: ", Severity::Error),
        (": warning: ", Severity::Warning),
    ]
    .into_iter()
    .find_map(|(mark, severity)| {
        let (place, message) = line.split_once(mark)?;
        Some((place, severity, message))
    })?;
    let mut parts = place.rsplitn(3, ':');
    let last: u32 = parts.next()?.parse().ok()?;
    let second = parts.next()?;
    let (file, at, column) = match (second.parse::<u32>(), parts.next()) {
        (Ok(at), Some(file)) => (file, at, Some(last)),
        (_, Some(rest)) => {
            return compiler_place(&format!("{rest}:{second}"), last, severity, message);
        }
        (_, None) => (second, last, None),
    };
    if file.contains(' ') {
        return None;
    }
    Some(Diagnostic {
        file: Some(tree_path(file)),
        line: Some(at),
        column,
        ..plain(severity, message.to_owned())
    })
}

/// A place whose file name itself holds a colon, and no column.
fn compiler_place(file: &str, line: u32, severity: Severity, message: &str) -> Option<Diagnostic> {
    (!file.contains(' ')).then(|| Diagnostic {
        file: Some(tree_path(file)),
        line: Some(line),
        ..plain(severity, message.to_owned())
    })
}

/// `ld: …: undefined reference to …`, `ERROR: modpost: …`.
fn linker_line(line: &str) -> Option<Diagnostic> {
    if let Some(rest) = line.strip_prefix("ERROR: modpost: ") {
        return Some(plain(Severity::Error, format!("modpost: {rest}")));
    }
    if let Some(rest) = line.strip_prefix("WARNING: modpost: ") {
        return Some(plain(Severity::Warning, format!("modpost: {rest}")));
    }
    let undefined = line.contains("undefined reference to") || line.contains("undefined symbol:");
    let linker = line.split(": ").next().is_some_and(|first| {
        let name = first.rsplit('/').next().unwrap_or(first);
        name == "ld"
            || name.ends_with("-ld")
            || name.ends_with("ld.lld")
            || name.ends_with("ld.bfd")
    });
    if undefined || (linker && !line.contains("warning: ")) {
        return Some(plain(Severity::Error, line.trim().to_owned()));
    }
    None
}

/// `make[3]: *** [../scripts/Makefile.build:229: x.o] Error 1` and `make: *** No rule …`.
fn make_line(line: &str) -> Option<String> {
    let (who, message) = line.split_once(": *** ")?;
    (who == "make" || who.starts_with("make[")).then(|| message.to_owned())
}

/// `FILE: In function 'NAME':`
fn function_line(line: &str) -> Option<(String, String)> {
    let (file, rest) = line.split_once(": In function ")?;
    let name = rest
        .trim_end_matches(':')
        .trim_matches(['\'', '‘', '’', '`', '"']);
    Some((tree_path(file), name.to_owned()))
}

/// Source lines and carets: `  293 |   code`, `      |   ^~~`, clang's unnumbered ones.
fn is_picture(line: &str) -> bool {
    let trimmed = line.trim_start();
    let after_number = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with(' ') && after_number.trim_start().starts_with('|')
        || (!trimmed.is_empty()
            && line.starts_with(' ')
            && trimmed.chars().all(|c| "^~ ".contains(c)))
}

/// Objects are made in a folder of the tree, so compilers say `../kernel/…`.
fn tree_path(path: &str) -> String {
    let mut path = path;
    while let Some(rest) = path.strip_prefix("../").or_else(|| path.strip_prefix("./")) {
        path = rest;
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gcc_with_function_and_picture() {
        let log = "  CC      mm/swap.o\n../mm/swap.c: In function 'folio_add':\n\
            ../mm/swap.c:293:13: error: implicit declaration of function 'skip_batch' [-Wimplicit-function-declaration]\n\
            \x20 293 |         if (skip_batch())\n      |             ^~~~~~~~~~\n\
            make[3]: *** [../scripts/Makefile.build:229: mm/swap.o] Error 1\n";
        let found = read(log);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].file.as_deref(), Some("mm/swap.c"));
        assert_eq!((found[0].line, found[0].column), (Some(293), Some(13)));
        assert_eq!(found[0].function.as_deref(), Some("folio_add"));
        assert_eq!(found[0].context.len(), 2);
    }

    #[test]
    fn warnings_and_linker_errors() {
        let log = "../kernel/x.c:7: warning: \"N\" redefined\nld: mm/swap.o: in function `f':\n\
            swap.c:(.text+0x12): undefined reference to `g'\nERROR: modpost: \"h\" [m.ko] undefined!\n";
        let found: Vec<String> = read(log).iter().map(ToString::to_string).collect();
        assert_eq!(found[0], "kernel/x.c:7: warning: \"N\" redefined");
        assert!(found[2].contains("undefined reference to `g'"));
        assert_eq!(found[3], "error: modpost: \"h\" [m.ko] undefined!");
    }

    #[test]
    fn a_failure_of_make_alone_is_told() {
        let found = read(
            "make[1]: *** No rule to make target 'foo.o'.  Stop.\nmake: *** [Makefile:2: x] Error 2\n",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "error: No rule to make target 'foo.o'.  Stop."
        );
    }

    #[test]
    fn progress_is_no_complaint() {
        assert!(read("  CC      drivers/acpi/error.o\n  AR      built-in.a\n").is_empty());
    }
}
