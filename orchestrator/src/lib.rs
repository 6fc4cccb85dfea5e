//! topolab: the engine.
