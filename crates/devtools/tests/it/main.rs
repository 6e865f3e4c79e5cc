//! Comparisons, and the script of the graph page. One binary, which links once; each file is a module.

mod compare;
mod graph_page;
