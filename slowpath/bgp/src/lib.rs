//! The BGP speaker.
