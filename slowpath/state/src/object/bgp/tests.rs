//! Rules of policies, each with its refusal.
