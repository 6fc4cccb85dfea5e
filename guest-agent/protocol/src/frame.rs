//! The wire. (Replaced by the full codec.)

/// Stream of files both ways.
pub const STREAM_FILE: u16 = 3;
/// Stream of a command's standard input.
pub const STREAM_STDIN: u16 = 0;
/// Stream of a command's standard output.
pub const STREAM_STDOUT: u16 = 1;
/// Stream of a command's standard error.
pub const STREAM_STDERR: u16 = 2;
