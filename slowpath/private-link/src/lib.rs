//! Azure Private Link, kept as objects say.
