//! The guest agent.

fn main() {}
