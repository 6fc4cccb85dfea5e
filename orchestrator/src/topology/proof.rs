//! Holds what the guest reports against what was asked.
