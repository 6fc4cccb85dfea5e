//! QEMU: its arguments, its process and its control socket.

pub mod accel;
pub mod acpi;
pub mod args;
pub mod capabilities;
pub mod process;
pub mod qmp;

#[cfg(test)]
mod tests;
