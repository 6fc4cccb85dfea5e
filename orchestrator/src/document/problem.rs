//! Problems of a file, shown with the line they are on.

use std::{fmt, sync::Arc};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// One thing that is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; 0 when the problem is the file's as a whole.
    pub line: u32,
    /// Column in characters, from 1; 0 with line 0.
    pub column: u32,
    /// What is wrong, with the values that disagree.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// All problems of one file. Shown as compilers show theirs.
#[derive(Debug, Clone)]
pub struct Problems {
    /// The file's name.
    pub file: String,
    text: Arc<str>,
    /// The problems, in the order of the file after [`Problems::sort`].
    pub list: Vec<Problem>,
}

impl Problems {
    /// Problems of a file with this text.
    pub fn new(file: &str, text: Arc<str>, list: Vec<Problem>) -> Self {
        Self {
            file: file.into(),
            text,
            list,
        }
    }

    /// One problem of a file that has no text.
    pub fn of_file(file: &str, message: String) -> Self {
        let problem = Problem {
            line: 0,
            column: 0,
            message,
            help: None,
        };
        Self::new(file, "".into(), vec![problem])
    }

    /// Adds a problem at a value's position.
    pub fn at<T>(
        &mut self,
        place: &super::At<T>,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.push(place.line, place.column, message, help);
    }

    /// Adds a problem at a position.
    pub fn push(
        &mut self,
        line: u32,
        column: u32,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.list.push(Problem {
            line,
            column,
            message: message.into(),
            help: help.into(),
        });
    }

    /// Puts the problems in the order of the file.
    pub fn sort(&mut self) {
        self.list.sort_by_key(|p| (p.line, p.column));
    }

    /// `Ok(value)` without problems, else all of them in order.
    ///
    /// # Errors
    /// The problems themselves.
    pub fn into_result<T>(mut self, value: T) -> Result<T, Self> {
        if self.list.is_empty() {
            return Ok(value);
        }
        self.sort();
        Err(self)
    }

    fn render(&self, problem: &Problem) -> String {
        let Some(offset) = self.offset(problem) else {
            let help = problem
                .help
                .as_ref()
                .map_or(String::new(), |help| format!("\n  = help: {help}"));
            return format!("error: {}: {}{help}", self.file, problem.message);
        };
        let rest = &self.text[offset..];
        let length = rest
            .find(|c: char| c.is_whitespace() || ",]}".contains(c))
            .unwrap_or(rest.len())
            .max(rest.chars().next().map_or(0, char::len_utf8));
        let snippet = Snippet::source(&*self.text)
            .path(&*self.file)
            .annotation(AnnotationKind::Primary.span(offset..offset + length));
        let mut group = Level::ERROR
            .primary_title(&*problem.message)
            .element(snippet);
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(&**help));
        }
        Renderer::plain().render(&[group])
    }

    /// Byte offset of a problem's position in the text.
    fn offset(&self, problem: &Problem) -> Option<usize> {
        let line = usize::try_from(problem.line).ok()?.checked_sub(1)?;
        let start: usize = self
            .text
            .split_inclusive('\n')
            .take(line)
            .map(str::len)
            .sum();
        let text = self.text.get(start..)?.lines().next().unwrap_or("");
        let column = usize::try_from(problem.column).ok()?.saturating_sub(1);
        Some(
            start
                + text
                    .char_indices()
                    .nth(column)
                    .map_or(text.len(), |(at, _)| at),
        )
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            f.write_str(&self.render(problem))?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
