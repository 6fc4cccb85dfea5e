//! The `topolab` command line.

fn main() {}
