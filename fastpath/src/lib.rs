//! fastpath
