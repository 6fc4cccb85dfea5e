//! QEMU: its arguments, its process and its control socket.

pub mod args;
pub mod process;

#[cfg(test)]
mod tests;
